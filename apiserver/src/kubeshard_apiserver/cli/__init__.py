"""The command `kubeshard apiserver`, which kubeshard's command line has once this distribution is installed.

`command` is what `--help` needs, and imports nothing of the server; `run` is the server at work.
"""
