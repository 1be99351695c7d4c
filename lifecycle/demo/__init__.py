"""The demo: a colocated LoRA loop under the state machine, small enough for two cores."""
