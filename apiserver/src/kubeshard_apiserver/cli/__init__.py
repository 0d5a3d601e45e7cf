"""The command `kubeshard apiserver`, available in kubeshard's command line once this distribution is installed.

`command` defines the options for `--help` without importing the server; `run` runs the server.
"""
