"""The command ``adapter-lifecycle``. Each command is a module; what is heavy is imported inside it."""
