"""One module per command: from parsed arguments to files written."""
