"""Hardware platforms that verl does not ship."""
