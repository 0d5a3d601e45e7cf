"""`kubectl shard`: questions about rings, answered from what the API server shows.

Every command but `drain` only reads. The answers are made by `kubeshard.survey`; here they are asked for and printed.
"""
