"""Build speculative sampling yourself: python -m exercises; the steps are in README.md."""
