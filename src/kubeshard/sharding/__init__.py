"""kubeshard.sharding"""
