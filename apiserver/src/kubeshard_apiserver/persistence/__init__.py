"""What outlives the process: a store's objects and the server's credentials, in a folder that only its owner can read.

`database` is the file, `journal` connects it with the store. Guaranteed: an acknowledged write survives a crash, also
of the machine; no resource version is used twice. History is not kept: after a restart, watches and continued lists
from before get 410 Gone, as after a compaction, and clients list again.
"""

from kubeshard_apiserver.persistence.journal import DatabaseJournal

__all__ = ["DatabaseJournal"]
