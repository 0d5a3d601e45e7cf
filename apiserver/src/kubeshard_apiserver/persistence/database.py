"""The file: SQLite with a write-ahead log, one process at a time.

Guaranteed: a batch is on the disk, as a whole, when `write` returns; only its owner can read the file; a file of
another program or version, or one that is damaged or in use, is refused with a clear error and left as it is.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from kubeshard.core.errors import ConfigurationError

_NAME = "apiserver.db"
_APPLICATION = 0x6B736861  # "ksha": how a SQLite file says whose it is
_VERSION = 1
_TABLES = """
CREATE TABLE objects (
  "group" TEXT, resource TEXT, namespace TEXT, name TEXT, value BLOB NOT NULL,
  PRIMARY KEY ("group", resource, namespace, name)
) WITHOUT ROWID;
CREATE TABLE settings (name TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID;
"""


class Row(NamedTuple):
    """`value` is None for what is to be removed."""

    group: str
    resource: str
    namespace: str
    name: str
    value: bytes | None


class Database:
    """In `folder`, which is made where it is missing. Raises ConfigurationError. May be used by one thread at
    a time, whichever.
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
        """Raises ConfigurationError."""
        try:
            for row in self._connection.execute(
                'SELECT "group", resource, namespace, name, value FROM objects'
            ):
                yield Row(*row)
        except sqlite3.Error as error:
            raise self._mistake(error) from error

    def setting(self, name: str) -> bytes | None:
        """Raises ConfigurationError."""
        try:
            found = self._connection.execute("SELECT value FROM settings WHERE name = ?", (name,)).fetchone()
        except sqlite3.Error as error:
            raise self._mistake(error) from error
        return None if found is None else bytes(found[0])

    def write(self, rows: Sequence[Row], settings: Iterable[tuple[str, bytes]]) -> None:
        """All of it or nothing; later rows win. Raises ConfigurationError."""
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
        # Held until the connection ends: a second process gets "locked" from its first statement.
        execute("PRAGMA locking_mode = EXCLUSIVE")
        (application,) = execute("PRAGMA application_id").fetchone()
        (version,) = execute("PRAGMA user_version").fetchone()
        (tables,) = execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) != (0, 0, 0):
            if application != _APPLICATION:
                raise ConfigurationError(f"{self.path} is the file of another program: give another folder")
            if version != _VERSION:
                raise ConfigurationError(
                    f"{self.path} was written by another version of kubeshard (its format is {version}, known is "
                    f"{_VERSION}): give another folder"
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
            return ConfigurationError(f"another process uses {self.path}: end it, or give another folder")
        if isinstance(error, sqlite3.OperationalError):
            return ConfigurationError(f"cannot use {self.path}: {error}")
        return ConfigurationError(f"{self.path} is damaged ({error}): give another folder, or restore a copy")
