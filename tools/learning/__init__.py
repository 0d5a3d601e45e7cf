"""How the tables of the built-in kinds are read from a real API server: questions, and what answers reveal."""
