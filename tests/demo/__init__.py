"""The demo: its parts, its loop and its command."""
