"""The controller as coroutines see it."""
