"""Adapters: the registry of what should be loaded, and slots on a PEFT model."""
