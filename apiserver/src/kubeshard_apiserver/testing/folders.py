"""Temporary folders that are always removed.

A folder is locked as long as its process lives; the kernel releases the lock however the process ends. Before a new
folder is created, unlocked folders with the same prefix are removed. So the next start removes what a killed process
left behind, and no folder in use is ever removed, not even that of a process in another container.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

from kubeshard.core.errors import ConfigurationError

_LOCK = ".in-use"


class TemporaryFolder:
    """Creates the folder below the one that `TMPDIR` names (default: the system's). Raises ConfigurationError if no
    such folder is writable.
    """

    def __init__(self, prefix: str) -> None:
        try:
            base = Path(tempfile.gettempdir())
            _remove_left(base, prefix)
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
            self._lock = _locked(self.path)
        except OSError as error:
            raise ConfigurationError(
                f"there is no folder for temporary files ({error.strerror}): set TMPDIR to a writable one"
            ) from None

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.keep()

    def keep(self) -> None:
        """Keeps the folder, even when other processes clean up."""
        (self.path / _LOCK).unlink(missing_ok=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(folder: Path) -> int:
    """Creates and locks a folder. The lock file gets its name only once it is locked, so no other process takes the
    folder for abandoned.
    """
    handle, path = tempfile.mkstemp(dir=folder)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.rename(path, folder / _LOCK)
    return handle


def _remove_left(base: Path, prefix: str) -> None:
    for lock in base.glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError):  # another user's, or being removed by another process
            if lock.stat().st_uid != os.getuid():
                continue
            handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(handle)
