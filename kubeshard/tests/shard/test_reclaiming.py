"""A shard that is back waits for its objects no longer than it has to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from itertools import product
from typing import Any, cast

import pytest

from failing_groups import FOREVER
from kubeshard.client import Client
from kubeshard.core import Kind, ObjectMeta
from kubeshard.core.errors import Conflict, Forbidden, PatchTestFailed, Unavailable
from kubeshard.core.objects import Form, PartialObject
from kubeshard.core.patches import JsonPatch, MergePatch, pointer
from kubeshard.core.selectors import Selector
from kubeshard.shard.identity import Incarnation, ShardIdentity
from kubeshard.shard.reclaiming import AT_A_TIME, PATIENCE, RARELY, clear, reclaim
from kubeshard.sharding.names import RETURNING, TAKEN
from kubeshard_lab.virtual_time import virtual_time

SHARD = ShardIdentity("r", "s0", "ns", Incarnation("", "", "x"))
SITES = Kind(group="example.com", version="v1", kind="Site", plural="sites", namespaced=True)
PAGES = Kind(group="example.com", version="v1", kind="Page", plural="pages", namespaced=True)


class Api:
    """Lists one object, and never responds to its write; a write that is given up fails with `bug`. The list fails
    after so many seconds.
    """

    def __init__(self, *, list_fails_after: float = FOREVER, bug: Exception | None = None) -> None:
        self._list_fails_after = list_fails_after
        self._bug = bug
        self.writes = 0

    async def list(self, *_: object, **__: object) -> AsyncIterator[PartialObject]:
        yield PartialObject(metadata=ObjectMeta(name="a", namespace="x"))
        await asyncio.sleep(self._list_fails_after)
        raise Unavailable("the server is restarting")

    async def patch(self, *_: object, **__: object) -> Any:
        self.writes += 1
        try:
            await asyncio.sleep(FOREVER)
        finally:
            if self._bug is not None:
                raise self._bug


@pytest.mark.parametrize(
    "api",
    [Api(bug=RuntimeError("a bug")), Api(list_fails_after=PATIENCE)],
    ids=["a write fails", "the list fails"],
)
@virtual_time
async def test_patience_ends_also_if_something_fails_in_that_moment(api: Api) -> None:
    loop = asyncio.get_running_loop()
    assert not await reclaim(cast("Client", api), SHARD, [(SITES, "x")])
    assert loop.time() <= PATIENCE + 1
    assert api.writes == 1


@pytest.mark.parametrize("turns", range(8))
def test_a_process_that_ends_as_its_list_fails_ends(turns: int) -> None:
    @virtual_time
    async def scene() -> None:
        api = Api(list_fails_after=5)
        task = asyncio.create_task(reclaim(cast("Client", api), SHARD, [(SITES, "x")]))
        await asyncio.sleep(5)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=10)
        assert task.cancelled()
        assert api.writes == 1

    scene()


class Stored:
    """One object of the shard. Each write meets the next of the faults, and none after the last."""

    def __init__(self, faults: Sequence[str] = (), drain: str = "") -> None:
        self._faults = list(faults)
        self.labels = {SHARD.label: SHARD.name, **({SHARD.drain: drain} if drain else {})}
        self.version = 1

    async def list(self, *_: object, label_selector: Selector, **__: object) -> AsyncIterator[PartialObject]:
        meta = ObjectMeta(
            name="a", namespace="x", resource_version=str(self.version), labels=dict(self.labels)
        )
        if label_selector.matches(self.labels):
            yield PartialObject(metadata=meta)

    async def patch(
        self,
        form: object,
        name: str,
        namespace: str,
        patch: MergePatch | JsonPatch,
        base: PartialObject | None = None,
    ) -> PartialObject:
        fault = self._faults.pop(0) if self._faults else ""
        if fault == "unsent":
            raise Unavailable("no connection")
        if fault == "another's write":
            self.version += 1
        self._apply(patch, base)
        if fault == "lost":
            raise Unavailable("the response was lost")
        if fault == "never":
            await asyncio.sleep(FOREVER)
        return PartialObject(metadata=ObjectMeta(name="a", namespace="x", resource_version=str(self.version)))

    def _apply(self, patch: MergePatch | JsonPatch, base: PartialObject | None) -> None:
        if base is not None and base.metadata.resource_version != str(self.version):
            raise Conflict("the object has been modified")
        if isinstance(patch, MergePatch):
            changes = patch.body["metadata"]["labels"]
            self.labels = {
                key: value for key, value in {**self.labels, **changes}.items() if value is not None
            }
        else:
            for op in patch.ops:
                (key,) = (
                    each
                    for each in (SHARD.label, SHARD.drain)
                    if op["path"] == pointer("metadata", "labels", each)
                )
                if op["op"] == "test" and self.labels.get(key) != op["value"]:
                    raise PatchTestFailed("test failed")
                if op["op"] == "remove":
                    del self.labels[key]
        self.version += 1


FAULTS = ("", "unsent", "lost", "another's write")


@virtual_time
async def test_whatever_becomes_of_its_writes_an_object_has_a_new_version_and_no_mark() -> None:
    for faults, drain in product(product(FAULTS, repeat=4), ("", RETURNING, TAKEN)):
        api = Stored(faults, drain)
        assert await reclaim(cast("Client", api), SHARD, [(SITES, "x")])
        assert (api.labels, api.version > 1) == ({SHARD.label: SHARD.name}, True), (faults, drain)


@virtual_time
async def test_a_mark_whose_answer_came_too_late_is_taken_away_afterwards() -> None:
    api = Stored(["never", "lost"])
    assert not await reclaim(cast("Client", api), SHARD, [(SITES, "x")])
    assert api.labels[SHARD.drain] == RETURNING
    await clear(cast("Client", api), SHARD, [(SITES, "x")])
    assert api.labels == {SHARD.label: SHARD.name}


@virtual_time
async def test_a_drain_is_not_taken_for_a_mark() -> None:
    api = Stored(drain="true")
    assert await reclaim(cast("Client", api), SHARD, [(SITES, "x")])
    await clear(cast("Client", api), SHARD, [(SITES, "x")])
    assert (api.labels[SHARD.drain], api.version) == ("true", 1)


class Marked:
    """Objects with the mark, of two kinds; lists of Sites and patches of objects called "denied" are refused."""

    def __init__(self, denied: int) -> None:
        self.names = [*(f"denied-{number}" for number in range(denied)), "b", "c"]
        self.denies = True
        self.patches = 0

    async def list(self, form: Form[PartialObject], *_: object, **__: object) -> AsyncIterator[PartialObject]:
        if form.kind == SITES:
            raise Forbidden("sites cannot be listed")
        labels = {SHARD.label: SHARD.name, SHARD.drain: RETURNING}
        for name in tuple(self.names):
            yield PartialObject(metadata=ObjectMeta(name=name, namespace="x", labels=labels))

    async def patch(self, form: object, name: str, *_: object, **__: object) -> None:
        self.patches += 1
        if self.denies and name.startswith("denied"):
            raise Forbidden("denied by a webhook")
        self.names.remove(name)


@virtual_time
async def test_marks_are_taken_away_whatever_other_kinds_and_objects_are_refused(
    caplog: pytest.LogCaptureFixture,
) -> None:
    api = Marked(denied=2 * AT_A_TIME)
    clearing = asyncio.create_task(clear(cast("Client", api), SHARD, [(SITES, "x"), (PAGES, "x")]))
    await asyncio.sleep(3600)
    assert set(api.names) == {f"denied-{number}" for number in range(2 * AT_A_TIME)}
    assert api.patches <= 2 + 2 * AT_A_TIME * 3600 / RARELY
    assert len([line for line in caplog.messages if line.startswith("Cannot write an object")]) == 1
    clearing.cancel()
    await asyncio.wait([clearing])


@virtual_time
async def test_a_mark_that_was_refused_at_first_is_taken_away_when_it_may_be() -> None:
    api = Marked(denied=1)
    clearing = asyncio.create_task(clear(cast("Client", api), SHARD, [(PAGES, "x")]))
    await asyncio.sleep(600)
    api.denies = False
    await asyncio.wait_for(clearing, 2 * RARELY)
    assert not api.names
