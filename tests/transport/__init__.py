"""Ways to an engine in another process, over real processes."""
