"""Other ways to verify: one file a paper, the same distribution as speculative.py."""
