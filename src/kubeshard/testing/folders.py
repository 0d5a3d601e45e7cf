"""Temporary folders that do not stay behind.

A folder is locked for as long as its process lives; the kernel gives the lock back however that ends. Who makes a
new folder first removes those of the same name that nobody holds. So what a killed process left is gone with the
next start, and nobody's folder is taken away, also not that of a process in another container.
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
    """Made when it is created, below the folder that `TMPDIR` names (default: the system's). Raises
    ConfigurationError when there is none that can be written.
    """

    def __init__(self, prefix: str) -> None:
        try:
            base = Path(tempfile.gettempdir())
            _remove_left(base, prefix)
            self.path = Path(tempfile.mkdtemp(prefix=prefix, dir=base))
            self._lock = _locked(self.path)
        except OSError as error:
            raise ConfigurationError(
                f"there is no folder for temporary files ({error.strerror}): set TMPDIR to one that can be written"
            ) from None

    def remove(self) -> None:
        shutil.rmtree(self.path, ignore_errors=True)
        self.keep()

    def keep(self) -> None:
        """It stays, also when others clean up."""
        (self.path / _LOCK).unlink(missing_ok=True)
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1


def _locked(folder: Path) -> int:
    """The lock has its name only once it is held: until then nobody takes the folder for abandoned."""
    handle, path = tempfile.mkstemp(dir=folder)
    fcntl.flock(handle, fcntl.LOCK_EX)
    os.rename(path, folder / _LOCK)
    return handle


def _remove_left(base: Path, prefix: str) -> None:
    for lock in base.glob(f"{prefix}*/{_LOCK}"):
        with contextlib.suppress(OSError):  # somebody else's, or somebody else removes it, too
            if lock.stat().st_uid != os.getuid():
                continue
            handle = os.open(lock, os.O_RDWR | os.O_NOFOLLOW)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(lock.parent, ignore_errors=True)
            finally:
                os.close(handle)
