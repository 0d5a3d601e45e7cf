"""How often Python's garbage collector scans the youngest generation, in kubeshard's programs."""

COLLECT_AFTER = 20_000
"""Objects that may be created before it runs. Objects from imports, and those in a cache, are not garbage."""
