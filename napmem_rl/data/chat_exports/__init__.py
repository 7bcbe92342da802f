"""Chats that people bring from other programs, as messages of a memory bank."""
