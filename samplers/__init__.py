"""Other ways to verify, one file a paper.  The text keeps the distribution that speculative.py gives it; only
in lossy.py there are rules that change it.

A file has a `verify` for speculative_sampling (block), a loop in its place (tree, batch, coupling), a rule
for a node of a tree (k_seq, multi_draft), a walk through a tree (traversal), or makes a model (constraints).
"""
