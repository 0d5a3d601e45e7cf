"""Kinds: what each one adds to the rules that hold for all.

`Strategy` is the contract; one module per kind that has rules of its own; `registry` knows what is served.
"""
