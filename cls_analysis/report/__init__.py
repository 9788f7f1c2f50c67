"""Reports: a diagnosis as text, Markdown or one self-contained HTML page."""
