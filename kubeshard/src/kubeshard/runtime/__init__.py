"""The seams to the world: clock, randomness, network, environment, threads - as protocols and their real
implementations.

The only package that reads a clock, draws random numbers, opens sockets or starts threads. Everything above
takes these by constructor, so a simulator can run the production classes on virtual time.
"""
