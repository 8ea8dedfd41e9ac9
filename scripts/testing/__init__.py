"""testing: what scripts/test.py is made of."""
