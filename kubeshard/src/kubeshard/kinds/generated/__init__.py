"""What `make types` writes: a module for each API group and version, and in which of them each name is (`homes`)."""
