"""The engine that lives in the trainer's process."""
