"""Tables and plots of what this costs and gains: python -m benchmarks --help."""
