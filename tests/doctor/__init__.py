"""The look at what is installed."""
