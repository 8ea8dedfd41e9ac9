"""testing: the parts of scripts/test.py."""
