"""How often Python's garbage collector looks at the youngest objects, in programs of kubeshard."""

COLLECT_AFTER = 20_000
"""Objects that may be created before it does. What imports make, and what a cache fills with, is no garbage."""
