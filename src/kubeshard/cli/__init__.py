"""kubeshard.cli"""
