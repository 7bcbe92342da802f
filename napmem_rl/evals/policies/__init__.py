"""Policies of an evaluation: navigators, passive readers, baselines, peers' stores."""
