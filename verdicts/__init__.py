"""Rules that somebody disputed, or might write by mistake: what the judge says of each."""
