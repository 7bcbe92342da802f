"""Rewards: text matching, judges and the reward rubric."""
