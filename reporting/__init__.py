"""The rounds of a run -> numbers, terminal colours, a replay page."""
