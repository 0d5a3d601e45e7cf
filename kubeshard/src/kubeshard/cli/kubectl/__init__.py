"""`kubectl shard`: questions about rings, answered from what the API server shows.

Every command except `drain` and `release` is read-only. `kubeshard.inspection` computes the answers; these modules
request and print them.
"""
