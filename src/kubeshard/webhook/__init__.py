"""kubeshard.webhook"""
