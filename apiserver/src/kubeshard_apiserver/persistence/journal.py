"""The link between a store and its file: writes are collected while the disk is busy and written together.

A write costs the event loop only its encoding; a thread waits for the disk, and a request waits for the thread before
it is answered. A slow disk costs latency but not throughput, because under load one wait serves many writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec

from kubeshard.core.errors import ConfigurationError
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.threads import Worker
from kubeshard_apiserver.persistence.database import Database, Row
from kubeshard_apiserver.status import internal

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
