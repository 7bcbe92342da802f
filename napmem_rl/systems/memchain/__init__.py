"""MemChain: retrieved candidates become compact, grounded evidence for a frozen answer model (arXiv 2607.24097)."""
