"""Long runs: nothing grows, and every fault in every configuration."""
