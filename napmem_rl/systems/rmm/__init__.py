"""Reflective memory management: topic memories written ahead, and a reranker that learns from citations."""
