"""Language models: chat clients, and the one token list of an episode."""
