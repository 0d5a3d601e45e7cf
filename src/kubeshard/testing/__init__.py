"""kubeshard.testing"""
