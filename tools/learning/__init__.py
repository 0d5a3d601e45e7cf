"""Derives the tables of the built-in kinds from the answers of a real API server."""
