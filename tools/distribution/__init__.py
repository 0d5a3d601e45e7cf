"""Makes reproducible packages and the documents that describe them, for `make dist`."""
