"""Interactive memory learning (arXiv 2609.17088): what to keep and when to recall, learned while talking."""
