"""Slots on a real megatron-core model, alone and over two tensor-parallel ranks."""
