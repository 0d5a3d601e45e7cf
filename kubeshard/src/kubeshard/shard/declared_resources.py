"""The resources of a ring: those of its ControllerRing, if there is one, or those that controllers declare with
`sharded=True` in their watches.

| watch | resource of the ring |
|---|---|
| `primary` | main: each object is assigned by itself |
| in `owns`, `watches` or `reads` | controlled by the primary kind: each object is assigned with its controller object |
| both, perhaps in different controllers | main |

Guaranteed: the same declarations give the same resources in every process, in any order. A declaration that
contradicts a ControllerRing is refused if controllers could not work with it.

RBAC: `get` on `controllerrings`, unless the resources are given.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

from kubeshard.client.client import Client
from kubeshard.client.discovery import KindNotServed
from kubeshard.controller.controller import Controller
from kubeshard.core.errors import (
    ApiError,
    ConfigurationError,
    Forbidden,
    NotFound,
    Throttled,
    Timeout,
    Unauthorized,
    Unavailable,
)
from kubeshard.core.kinds import GroupKind, GroupResource, Kind
from kubeshard.runtime.logs import get_logger
from kubeshard.sharding.api import ControllerRing, RingGroupResource, RingResource
from kubeshard.sharding.ring_resources import RingResources

T = TypeVar("T")

RING_PATIENCE = 5.0
"""Seconds between two checks for a ring that does not exist yet."""

_log = get_logger("kubeshard.shard")


def declared_resources(controllers: Iterable[Controller[Any]]) -> tuple[RingResource, ...]:
    """Empty if no watch is `sharded`. Raises ConfigurationError for an impossible ring."""
    controlled: dict[GroupResource, set[GroupResource]] = {}
    for controller in controllers:
        primary, *others = (
            (watch.form.kind.group_resource, watch.sharded) for watch in controller.all_watches
        )
        followers = {resource for resource, sharded in others if sharded}
        if primary[1]:
            controlled.setdefault(primary[0], set()).update(followers)
        elif followers:
            raise ConfigurationError(
                f"controller {controller.name}: {_listed(followers)} cannot be sharded without {primary[0]}: set "
                "sharded=True in the primary watch, too"
            )
    declared = tuple(
        RingResource(
            group=main.group,
            resource=main.resource,
            controlled_resources=tuple(
                RingGroupResource(group=each.group, resource=each.resource)
                for each in sorted(controlled[main] - controlled.keys())
            ),
        )
        for main in sorted(controlled)
    )
    if refused := [problem.message for problem in RingResources(declared).problems if not problem.conflict]:
        raise ConfigurationError("; ".join(refused))
    return declared


def owned_mains(controllers: Sequence[Controller[Any]]) -> Sequence[str]:
    """What is assigned by itself, although another main kind owns it: unless a whole namespace is together, one of both
    is often not in the cache of the other's shard.
    """
    mains = {c.primary_watch.form.kind.group_resource for c in controllers if c.primary_watch.sharded}
    found = (
        f"{owned} of {controller.primary_watch.form.kind.group_resource}"
        for controller in controllers
        for owned in (watch.form.kind.group_resource for watch in controller.owned_watches if watch.sharded)
        if controller.primary_watch.sharded and owned in mains
    )
    return sorted(set(found))


def undeclared_resources(controllers: Iterable[Controller[Any]]) -> tuple[RingResource, ...]:
    """The most that a ring may shard for these controllers, if they leave it to a ControllerRing."""
    return tuple(
        RingResource(
            group=main.group,
            resource=main.resource,
            controlled_resources=tuple(
                RingGroupResource(group=owned.group, resource=owned.resource)
                for owned in (
                    watch.form.kind.group_resource
                    for watch in (*controller.owned_watches, *controller.read_watches)
                )
            ),
        )
        for controller in controllers
        for main in (controller.primary_watch.form.kind.group_resource,)
    )


class FoundRing(NamedTuple):
    """What the ring shards, and its ControllerRing, if it was read."""

    resources: RingResources
    resource: ControllerRing | None = None


async def find_ring(
    client: Client,
    ring: str,
    controllers: Sequence[Controller[Any]],
    given: Sequence[RingResource] | None = None,
    *,
    shares_out: bool,
) -> FoundRing:
    """Returns `given`, the resources of the ControllerRing, or the declared ones if there is none. If there are none at
    all, waits for the ControllerRing. `shares_out`: this process may be the ring's sharder. Raises ConfigurationError.
    """
    declared, read = declared_resources(controllers) if given is None else (), None
    if given is not None:
        found = given
    elif not declared:
        read = await _waiting(ring, lambda: _read_ring(client, ring))
        found = read.spec.resources
    elif (read := await _waiting(ring, lambda: _read_ring_if_any(client, ring))) is None:
        found = declared
        if shares_out:
            _log.info("There is no ControllerRing; using the controllers' declarations", ring=ring)
        else:
            _log.warning(
                "There is no ControllerRing, and this instance assigns no objects",
                ring=ring,
                advice='give some instances mode="both"; or, if a sharder service shares out the ring, create the '
                "ControllerRing, or correct its name",
            )
    else:
        found = read.spec.resources
        for missing in check_agreement(ring, RingResources(declared), RingResources(found)):
            _log.warning("The ControllerRing differs from what controllers declare", problem=missing)
    resources = RingResources(found)
    for problem in resources.problems:
        _log.warning("ControllerRing has a mistake", ring=ring, problem=problem.message)
    return FoundRing(resources, read)


async def find_kinds(
    client: Client, ring: str, resources: RingResources, controllers: Sequence[Controller[Any]]
) -> dict[GroupKind, Kind]:
    """The kinds of the resources: known if controllers watch them, otherwise looked up with discovery."""
    return await _waiting(ring, lambda: _kinds(client, resources, controllers))


def check_agreement(ring: str, declared: RingResources, given: RingResources) -> tuple[str, ...]:
    """What the ControllerRing `given` lacks although it is declared, if controllers can work anyway.

    Raises ConfigurationError if they cannot: for a missing main resource, or a different role.
    """
    missing = []
    for entry in declared.entries:
        if entry.resource in given and given.entry(entry.resource).main == entry.main:
            continue
        if entry.resource not in given and not entry.main:
            missing.append(f"{entry.resource} is declared as sharded, but not in the ControllerRing")
            continue
        role = "a main resource" if entry.main else "a controlled resource"
        raise ConfigurationError(
            f"{entry.resource} is declared as {role}, which it is not in ControllerRing {ring!r}: correct the "
            "ControllerRing, or the watches with sharded=True"
        )
    return tuple(missing)


async def _read_ring(client: Client, ring: str) -> ControllerRing:
    try:
        return await client.get(ControllerRing, ring)
    except Forbidden as error:
        raise ConfigurationError(
            f"reading ControllerRing {ring!r} is forbidden: grant get on controllerrings; "
            "`kubeshard rbac` prints all rules that the operator needs"
        ) from error


async def _read_ring_if_any(client: Client, ring: str) -> ControllerRing | None:
    try:
        return await _read_ring(client, ring)
    except NotFound:
        return None


async def _waiting(ring: str, asking: Callable[[], Awaitable[T]]) -> T:
    """The server's response, as soon as there is one. Logs changes of what it waits for. Raises Unauthorized."""
    reported = ""
    while True:
        try:
            return await asking()
        except Unauthorized:
            raise  # credentials that have expired when a program starts are a mistake
        except ApiError as error:
            problem = _problem(error)
            if problem != reported:
                _log.warning("Waiting for the ControllerRing", ring=ring, problem=problem, error=error)
                reported = problem
        await asyncio.sleep(RING_PATIENCE)


def _problem(error: ApiError) -> str:
    match error:
        case NotFound() if not error.details.get("name"):
            return (
                "the API server has no ControllerRings: install the CustomResourceDefinition "
                f"{ControllerRing.KIND.plural}.{ControllerRing.KIND.group}, or say sharded=True in the controllers' "
                "watches"
            )
        case NotFound():
            return "it does not exist: create it, or correct the name, or set sharded=True in the controllers' watches"
        case Throttled() | Timeout() | Unavailable():
            return (
                "the API server does not respond: check its address, the network, and the certificate authority "
                "of the kubeconfig"
            )
        case _:
            return str(error)


async def _kinds(
    client: Client, resources: RingResources, controllers: Sequence[Controller[Any]]
) -> dict[GroupKind, Kind]:
    declared = {
        watch.form.kind.group_resource: watch.form.kind
        for controller in controllers
        for watch in controller.all_watches
    }
    kinds = {}
    for entry in resources.entries:
        kind = declared.get(entry.resource)
        if kind is None:
            try:
                kind = await client.discovery.kind(entry.resource.group, resource=entry.resource.resource)
            except KindNotServed:
                _log.warning(
                    "The API server does not serve a resource of the ring", resource=str(entry.resource)
                )
                continue
        kinds[kind.group_kind] = kind
    return kinds


def _listed(resources: Iterable[GroupResource]) -> str:
    return ", ".join(map(str, sorted(resources)))
