"""Load, chaos and measurement for sharded controllers (protocol 10). Its room in the house: empty so far."""
