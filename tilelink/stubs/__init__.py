"""Stubs of Triton-distributed for type checkers, a folder a vendor; `write.py` makes them."""
