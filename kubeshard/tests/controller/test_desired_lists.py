"""Applies to lists in which another entry has the name of a desired one, on an API server."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import pytest
from desiring import DEFINITIONS, NAMESPACE, SERIAL, Killed, Operator, World, app, definition

from kubeshard.controller import ApplyFailed, ImmutableFields
from kubeshard.core import ApiError, KubeObject, MergePatch, ObjectMeta, Struct, field
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.examples.webhosting.workload import Service, ServicePort, ServiceSpec


class Entry(Struct):
    id: str = ""
    name: str = ""


class BoardSpec(Struct):
    serial: str = ""
    entries: tuple[Entry, ...] = ()


class Board(KubeObject, group="example.com", version="v1"):
    """Several entries may have one name. `serial` cannot be changed."""

    spec: BoardSpec = field(default_factory=BoardSpec)


TEXT = {"type": "string"}
BOARDS = definition(
    Board,
    spec={
        "type": "object",
        "properties": {
            "serial": SERIAL,
            "entries": {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["id"],
                "items": {"type": "object", "required": ["id"], "properties": {"id": TEXT, "name": TEXT}},
            },
        },
    },
)


async def world() -> World:
    api = MemoryApi()
    await api.install(*DEFINITIONS, BOARDS)
    found = World(api)
    await found.client.create(app())
    return found


def test_an_entry_of_others_stays_if_what_is_refused_is_the_change_of_another_field() -> None:
    def board(serial: str, **entries: str) -> Board:
        spec = BoardSpec(
            serial=serial, entries=tuple(Entry(id=id_, name=name) for id_, name in entries.items())
        )
        return Board(metadata=ObjectMeta(name="b", namespace=NAMESPACE), spec=spec)

    async def run() -> None:
        there = await world()
        async with there.operator(Board) as operator:
            await operator.apply(board("1", a="one"))
            theirs = {"spec": {"entries": [{"id": "a", "name": "one"}, {"id": "b", "name": "two"}]}}
            before = await there.client.patch(Board, "b", NAMESPACE, MergePatch(theirs))
            with pytest.raises(ApplyFailed) as failed:
                await operator.apply(board("2", a="one", c="two"))
            assert [type(error) for error in failed.value.exceptions] == [ImmutableFields]
        assert (await there.client.get(Board, "b", NAMESPACE)).spec == before.spec

    asyncio.run(run())


def service(**ports: int) -> Service:
    known = tuple(
        ServicePort(name=name, port=port, target_port=port, protocol="TCP") for name, port in ports.items()
    )
    spec = ServiceSpec(type="ClusterIP", selector={"app": "shop"}, ports=known)
    return Service(metadata=ObjectMeta(name="shop", namespace=NAMESPACE), spec=spec)


async def broken_at(number: int | None, how: str) -> int:
    """Takes a port's number back with a process that breaks at a request, and then with another one. Returns how
    many requests the first one sent.
    """
    there = await world()

    async def apply(operator: Operator, **ports: int) -> Any:
        return await operator.apply(service(**ports))

    async with there.operator(Service) as operator:
        await apply(operator, http=80)
        await apply(operator, http=80, admin=90)  # the first one was a create
        changed = {"http": 81, "admin": 90, "theirs": 99}
        entries = [{"name": name, "port": port} for name, port in changed.items()]
        await there.client.patch(Service, "shop", NAMESPACE, MergePatch({"spec": {"ports": entries}}))
    async with there.operator(Service) as operator:
        operator.wire.fatal, operator.wire.how = number, how
        with suppress(Killed, ApplyFailed, ApiError):
            await apply(operator, http=80, admin=90)
        sent = len(operator.wire.requests)
    async with there.operator(Service) as operator:
        await apply(operator, http=80, admin=90)
        assert await _ports(there) == {"http": 80, "admin": 90, "theirs": 99}
        await apply(operator, admin=90)
        assert await _ports(there) == {"admin": 90, "theirs": 99}
    return sent


async def _ports(there: World) -> dict[str, int]:
    found = await there.client.get(Service, "shop", NAMESPACE)
    return {port.name: port.port for port in found.spec.ports}


@pytest.mark.long
@pytest.mark.parametrize("how", ["before", "after", "lost"])
def test_a_port_is_taken_back_and_given_up_later_whichever_request_broke(how: str) -> None:
    async def run() -> None:
        for number in range(await broken_at(None, "")):
            await broken_at(number, how)

    asyncio.run(run())
