"""kubeshard.examples"""
