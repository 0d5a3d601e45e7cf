"""The admission plugins of the real server that change pods, all of which it enables by default. Others that it enables
by default are part of the rules of their kinds, and always on.
"""

ADMISSION_PLUGINS = ("DefaultTolerationSeconds", "LimitRanger", "Priority", "ServiceAccount")
