"""The verbs of a server, as collaborators that share one model: reads, watches, writes and deletions.

The verbs that write are steps (see `steps`), because they call admission webhooks. Dependencies go one way: `updating`
takes an update to the point where it can be stored, `establishing` uses it to put definitions into effect, and
`writing` and `deleting` use both.
"""
