"""Writers that turn messages into records, tracks and a profile."""
