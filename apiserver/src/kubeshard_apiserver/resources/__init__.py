"""The kinds, each with the rules that it adds to those common to all.

`Strategy` is the contract. Each kind with rules of its own has its own module. `registry` lists what is served.
"""
