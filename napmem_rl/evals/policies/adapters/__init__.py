"""Peers' memory stores in place of a bank, by their real packages."""
