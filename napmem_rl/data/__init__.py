"""Data sets: rows on disk, splits, and one module per source."""
