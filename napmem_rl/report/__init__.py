"""One self-contained HTML page out of a run directory."""
