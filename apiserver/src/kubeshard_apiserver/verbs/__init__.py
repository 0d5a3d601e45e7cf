"""What a server does with objects, as collaborators over one model: reads, watches, writes, deletions.

Those that write are steps (`steps`), for they ask admission webhooks. Nothing here calls upwards: `changing` brings a
change to the point where it can be stored, `establishing` uses it for what follows from a definition, and `writing`
and `deleting` use both.
"""
