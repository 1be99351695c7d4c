"""The specification of the pure core."""
