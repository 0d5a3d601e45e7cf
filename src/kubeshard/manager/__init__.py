"""kubeshard.manager"""
