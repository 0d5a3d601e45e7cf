"""Kinds: what each adds to the rules for all.

`Strategy` is the contract; one module per kind that has rules of its own; `registry` knows what is served.
"""
