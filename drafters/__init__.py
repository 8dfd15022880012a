"""Who guesses: one way of drafting a file, one file a paper."""
