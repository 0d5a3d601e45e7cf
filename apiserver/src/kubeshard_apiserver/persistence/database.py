"""The database file: SQLite with a write-ahead log, for one process at a time.

Guaranteed: the whole batch is on disk when `write` returns; only its owner can read the file; a file that belongs to
another program or version, is damaged or is in use is rejected with a clear error and left unchanged.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kubeshard.core.errors import ConfigurationError

_NAME = "apiserver.db"
_APPLICATION = 0x6B736861  # "ksha": identifies the application that a SQLite file belongs to
_VERSION = 1
_TABLES = """
CREATE TABLE objects (
  "group" TEXT, resource TEXT, namespace TEXT, name TEXT, value BLOB NOT NULL,
  PRIMARY KEY ("group", resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


class Row(NamedTuple):
    """`value` is None if the object is to be removed."""

    group: str
    resource: str
    namespace: str
    name: str
    value: bytes | None


class Database:
    """The database in `folder`, which is created if missing. Raises ConfigurationError. Any thread may use it, but
    only one at a time.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / _NAME
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        except OSError as error:
            raise ConfigurationError(f"cannot keep data in {folder}: {error.strerror}") from error
        try:
            self._connection = sqlite3.connect(
                self.path, timeout=0.5, isolation_level=None, check_same_thread=False
            )
        except sqlite3.Error as error:
            raise self._mistake(error) from error
        try:
            self._open()
        except sqlite3.Error as error:
            self._connection.close()
            raise self._mistake(error) from error
        except BaseException:
            self._connection.close()
            raise

    def rows(self) -> Iterator[Row]:
        """Yields the stored objects. Raises ConfigurationError."""
        try:
            for row in self._connection.execute(
                'SELECT "group", resource, namespace, name, value FROM objects'
            ):
                yield Row(*row)
        except sqlite3.Error as error:
            raise self._mistake(error) from error

    def setting(self, name: str) -> bytes | None:
        """Returns a setting, or None if it was never written. Raises ConfigurationError."""
        try:
            found = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        except sqlite3.Error as error:
            raise self._mistake(error) from error
        return None if found is None else bytes(found[0])

    def write(self, rows: Sequence[Row], settings: Iterable[tuple[str, bytes]]) -> None:
        """Writes everything or nothing; later rows win. Raises ConfigurationError."""
        execute = self._connection.execute
        try:
            execute("BEGIN")
            for row in rows:
                if row.value is None:
                    execute(
                        'DELETE FROM objects WHERE ("group", resource, namespace, name) = (?, ?, ?, ?)',
                        row[:4],
                    )
                else:
                    execute("REPLACE INTO objects VALUES (?, ?, ?, ?, ?)", row)
            self._connection.executemany("REPLACE INTO settings VALUES (?, ?)", settings)
            execute("COMMIT")
        except sqlite3.Error as error:
            if self._connection.in_transaction:
                self._connection.rollback()
            raise self._mistake(error) from error

    def close(self) -> None:
        self._connection.close()

    def _open(self) -> None:
        execute = self._connection.execute
        # The lock is held until the connection ends: the first statement of a second process fails with "locked".
        execute("PRAGMA locking_mode = EXCLUSIVE")
        (application,) = execute("PRAGMA application_id").fetchone()
        (version,) = execute("PRAGMA user_version").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) != (0, 0, 0):
            if application != _APPLICATION:
                raise ConfigurationError(f"{self.path} belongs to another program; use another folder")
            if version != _VERSION:
                raise ConfigurationError(
                    f"{self.path} was written by another version of kubeshard (its format is {version}, expected "
                    f"{_VERSION}); use another folder"
                )
        execute("PRAGMA journal_mode = WAL")
        execute("PRAGMA synchronous = FULL")
        if not tables:
            self._connection.executescript(
                f"BEGIN; {_TABLES} PRAGMA application_id = {_APPLICATION}; PRAGMA user_version = {_VERSION}; COMMIT;"
            )
        else:
            execute("BEGIN EXCLUSIVE")
            execute("COMMIT")
        (problem,) = execute("PRAGMA quick_check(1)").fetchone()
        if problem != "ok":
            raise sqlite3.DatabaseError(problem)

    def _mistake(self, error: sqlite3.Error) -> ConfigurationError:
        if getattr(error, "sqlite_errorname", "") in ("SQLITE_BUSY", "SQLITE_LOCKED"):
            return ConfigurationError(f"another process is using {self.path}; stop it, or use another folder")
        if isinstance(error, sqlite3.OperationalError):
            return ConfigurationError(f"cannot use {self.path}: {error}")
        return ConfigurationError(
            f"{self.path} is damaged ({error}); use another folder, or restore a backup"
        )
