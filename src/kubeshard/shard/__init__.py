"""kubeshard.shard"""
