"""Algorithms as pure torch functions."""
