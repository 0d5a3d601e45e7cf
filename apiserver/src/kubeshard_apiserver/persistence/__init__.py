"""Persistence of a store's objects and the server's credentials, in a directory that only its owner can read.

`database` is the file, and `journal` connects it to the store. Guaranteed: an acknowledged write survives a crash,
even of the machine; no resource version is used twice. History is not kept: after a restart, earlier watches and
paginated lists get 410 Gone, as after a compaction, and clients relist.
"""

from kubeshard_apiserver.persistence.journal import DatabaseJournal

__all__ = ["DatabaseJournal"]
