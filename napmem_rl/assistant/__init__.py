"""What people do with a memory bank: ask it, talk to it, add to it, plug it into another assistant."""
