"""Simulations of an author's own operator: instances, objects, and oracles that know nothing of its kinds."""
