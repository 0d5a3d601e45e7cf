"""The checksum controller: ConfigMaps with the SHA-256 of every value of every Secret in a namespace."""

from kubeshard_lab.examples.checksum.operator import build_checksum_controller, connected_checksum_controller

__all__ = ["build_checksum_controller", "connected_checksum_controller"]
