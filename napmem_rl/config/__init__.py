"""Recipes: verl's defaults, our typed sections, and what a user may change in both."""
