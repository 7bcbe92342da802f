"""The memory bank of one user: the pyramid, its files and how it is built."""
