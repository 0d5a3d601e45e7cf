"""Load experiments: how much a set-up of operator and sharder carries, measured from the user's point of view.

`recording` is what a run leaves on disk, and the only thing that its parts share: the load, the tracker and the watcher
of processes write it, levels and reports read it. Nothing that runs in production imports this package.
"""
