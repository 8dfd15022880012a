"""Every way to draft and to verify; table.py lists them all."""
