"""kubeshard.sharder"""
