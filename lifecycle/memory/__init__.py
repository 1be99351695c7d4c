"""How memory is laid out: which tensors there are, in which regions, and what the host has room for."""
