"""`kubeshard demo`: an API server, sharders, shards and Websites on this machine, and what happens to them.

The demo shows only what can be seen through the API server: the picture is computed from Leases and labels.
"""
