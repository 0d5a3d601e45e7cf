"""`kubeshard demo`: an API server, sharders, shards and Websites on this machine, and what happens to
them.

A demo shows what the API server shows, nothing else: the picture is computed from Leases and labels.
"""
