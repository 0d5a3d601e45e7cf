"""The container image: what is in it, how it is made without Docker and tried: `make image`, `make test-image`."""
