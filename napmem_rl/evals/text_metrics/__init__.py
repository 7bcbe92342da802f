"""Scores of a text against accepted texts, each by a kept library or after its publication."""
