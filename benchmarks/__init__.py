"""Counts, costs, and the tables and plots made from them: python -m benchmarks --help."""
