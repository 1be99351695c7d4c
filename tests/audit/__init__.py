"""The audit log: written, read back, chained, and whole after a crash."""
