"""Every way to draft and to verify: table.py names them all."""
