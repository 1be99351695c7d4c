"""Programs that ask what may not be asked in this process. Each prints one JSON object as its last line."""
