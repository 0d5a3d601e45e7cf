"""Simulations of an author's own operator: several instances of it, its objects, and oracles that need to know nothing
about its kinds.
"""
