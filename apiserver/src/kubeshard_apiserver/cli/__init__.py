"""The command `kubeshard apiserver`, part of kubeshard's command line once this distribution is installed.

`command` is what `--help` needs and imports nothing of the server; `run` runs the server.
"""
