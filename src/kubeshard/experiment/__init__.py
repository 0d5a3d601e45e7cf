"""kubeshard.experiment"""
