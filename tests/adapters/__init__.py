"""Tests of adapters: registrations, files, and slots on a PEFT model."""
