"""The rounds of a run -> numbers, terminal colours, a replay page, a site of them."""
