"""kubeshard.cache"""
