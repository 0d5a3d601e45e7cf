"""What outlives the process: a store's objects and the server's credentials, in a folder of its owner's.

`database` is the file, `journal` what stands between it and the store. Guaranteed: what was answered for is
there after a crash, also of the machine; no resource version is given twice. Not kept: the past. After a
restart watches and continued lists of before get 410 Gone, as after a compaction, and clients list again.
"""

from kubeshard_apiserver.persistence.journal import DatabaseJournal

__all__ = ["DatabaseJournal"]
