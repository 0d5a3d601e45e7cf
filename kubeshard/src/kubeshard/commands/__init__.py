"""What the command lines of this house share: options, their help, logging, and how a command ends.

Every command reports a user's mistake in one line that says what to do. The exit code is 2 for wrong usage or
configuration and 1 for a failure while running. The first Ctrl-C or SIGTERM ends a command gracefully, the second at
once.
"""
