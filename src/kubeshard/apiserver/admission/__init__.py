"""What is asked about a write before it happens: admission webhooks and policies."""
