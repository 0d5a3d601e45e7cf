"""The container image: its content, and how it is made and tested without Docker: `make image`, `make test-image`."""
