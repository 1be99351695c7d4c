"""The tests of adapter-lifecycle."""
