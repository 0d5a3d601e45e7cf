"""kubeshard: horizontally scalable Kubernetes controllers."""

__version__ = "0.1.0.dev0"
