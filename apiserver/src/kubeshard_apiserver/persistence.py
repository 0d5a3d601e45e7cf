"""Persistence of a store's objects and the server's credentials, in a directory that only its owner can read.

`Database` is the file, SQLite with a write-ahead log for one process at a time, and `DatabaseJournal` connects it to
the store. Guaranteed: an acknowledged write survives a crash, even of the machine; no resource version is used twice; a
file that belongs to another program or version, is damaged or is in use is rejected with a clear error and left
unchanged. History is not kept: after a restart, earlier watches and paginated lists get 410 Gone, as after a
compaction, and clients relist.

Writes are collected while the disk is busy and written together. A write costs the event loop only its encoding; a
thread waits for the disk, and a request waits for the thread before it is answered. A slow disk costs latency but not
throughput, because under load one wait serves many writes.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple

import msgspec

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.blocking_calls import Worker
from kubeshard.runtime.logs import get_logger
from kubeshard_apiserver.status import internal

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


_LOG = get_logger("kubeshard_apiserver")
_REVISION = "revision"


class _Batch:
    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.done = asyncio.Event()


class DatabaseJournal:
    """Implements `kubeshard_apiserver.store.Journal`. Writes reach the file inside `async with`; leaving the block
    waits for the remaining writes and closes the file. The constructor raises ConfigurationError.

    `problem` says why nothing is written any more; once set it stays set, and so does the event `failed`.
    """

    def __init__(self, folder: Path) -> None:
        self._database = Database(folder)
        self._revision = int(self._database.setting(_REVISION) or 0)
        self._collecting = _Batch()
        self._writing: _Batch | None = None
        self._wanted = asyncio.Event()
        self._closing = False
        self._worker = Worker("kubeshard-journal")
        self._task: asyncio.Task[None] | None = None
        self.problem = ""
        self.failed = asyncio.Event()

    @property
    def revision(self) -> int:
        return self._revision

    def objects(self) -> Iterator[tuple[GroupResource, Key, bytes]]:
        """Yields the JSON of the objects in the file. Raises ConfigurationError."""
        for row in self._database.rows():
            data = row.value or b""
            try:
                msgspec.json.decode(data, type=dict)
            except msgspec.MsgspecError as error:
                raise ConfigurationError(f"{self._database.path} is damaged ({error})") from error
            yield GroupResource(row.group, row.resource), Key(row.namespace, row.name), data

    def setting(self, name: str) -> bytes | None:
        """Returns what `keep` stored. Raises ConfigurationError."""
        return self._database.setting(name)

    def keep(self, name: str, value: bytes) -> None:
        """Stores a setting immediately; for values that are written only once. Raises ConfigurationError."""
        self._database.write((), [(name, value)])

    def put(self, resource: GroupResource, key: Key, data: bytes, revision: int) -> None:
        self._add(Row(*resource, *key, data), revision)

    def remove(self, resource: GroupResource, key: Key, revision: int) -> None:
        self._add(Row(*resource, *key, None), revision)

    async def settled(self) -> None:
        batch = self._collecting if self._collecting.rows else self._writing
        if batch is not None:
            await batch.done.wait()
        if self.problem:
            raise internal(self.problem)

    async def __aenter__(self) -> DatabaseJournal:
        self._task = asyncio.create_task(self._run(), name="journal")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._closing = True
        self._wanted.set()
        if self._task is not None:
            await self._task
        self._worker.close()
        self._database.close()

    def _add(self, row: Row, revision: int) -> None:
        self._revision = revision
        self._collecting.rows.append(row)
        self._wanted.set()

    async def _run(self) -> None:
        while not self._closing or self._collecting.rows:
            await self._wanted.wait()
            self._wanted.clear()
            if self._collecting.rows:
                await self._write()

    async def _write(self) -> None:
        batch, revision = self._collecting, self._revision
        self._collecting, self._writing = _Batch(), batch
        try:
            if not self.problem:
                settings = [(_REVISION, str(revision).encode())]
                await self._worker.call(self._database.write, batch.rows, settings)
        except ConfigurationError as error:
            _LOG.error("Cannot persist writes; all requests are refused from now on, reads too", error=error)
            self.problem = str(error)
            self.failed.set()
        finally:
            self._writing = None
            batch.done.set()
