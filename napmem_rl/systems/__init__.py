"""One folder per system; systems do not import each other."""
