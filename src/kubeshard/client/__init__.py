"""kubeshard.client"""
