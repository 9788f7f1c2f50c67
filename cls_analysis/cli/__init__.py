"""The command line: parses, calls one workflow, prints."""
