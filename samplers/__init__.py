"""Other ways to verify, one file per paper.  The text keeps the distribution that speculative.py gives it;
only the rules in lossy.py change it.

A file has a `verify` for speculative_sampling (block, lossy), a loop that replaces it (tree, batch,
coupling), a rule for a node of a tree (k_seq, multi_draft), a walk through a tree (traversal), or a wrapper
for a model (constraints).
"""
