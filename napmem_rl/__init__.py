"""Reinforcement learning of long-term memory use, on verl."""
