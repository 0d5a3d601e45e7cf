"""kubeshard.controller"""
