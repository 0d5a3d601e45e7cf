"""kubeshard.workqueue"""
