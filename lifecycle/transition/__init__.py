"""One transition: facts gathered, effects run and undone, the record written."""
