"""Build speculative sampling yourself: python -m exercises.  README.md describes the steps."""
