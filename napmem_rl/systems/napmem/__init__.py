"""NapMem: memory as a structured action space (arXiv 2607.05794)."""
