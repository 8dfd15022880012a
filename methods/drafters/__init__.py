"""Ways to draft, one file per paper."""
