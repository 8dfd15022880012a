"""Other samplers, and parts of samplers.  All are lossless but the rules in lossy.py.

    block, lossy            a `verify` for speculative_sampling
    tree, batch, coupling   a loop that replaces speculative_sampling
    k_seq, multi_draft      a rule for a node of a tree
    traversal               a walk through a tree
    constraints             a wrapper for a model
"""
