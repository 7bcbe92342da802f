"""Memory tools: what the policy may call, how its calls are read, and what comes back."""
