"""What a browser shows: the replay of a run, and a site of all that can be seen without an install."""
