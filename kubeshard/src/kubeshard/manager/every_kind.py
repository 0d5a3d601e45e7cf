"""Tracks the kinds that the server serves, and adds and removes the controllers of `EveryKind`.

It runs discovery shortly after a CustomResourceDefinition changes (changes come in bursts, and a kind is served a
moment after its definition was accepted), again after things have settled, and every minute in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from kubeshard.cache.cache import Cache
from kubeshard.client.client import Client
from kubeshard.controller.controller import Controller, check_controllers
from kubeshard.controller.every_kind import DEFINITIONS, EveryKind
from kubeshard.core.errors import ApiError
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.manager.controllers import Controllers
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import set_within

DEBOUNCE = 0.5
SETTLED = 5.0
"""Seconds after a change until even a slow server's discovery shows it."""
PERIOD = 60.0
RETRY = 5.0

_log = get_logger("kubeshard.manager")


class _Known(NamedTuple):
    kind: Kind
    controllers: tuple[str, ...]
    """The names of its controllers."""


class DynamicControllers:
    """Manages the controllers that `every` makes in `controllers`."""

    def __init__(
        self, every: Sequence[EveryKind], controllers: Controllers, client: Client, cache: Cache
    ) -> None:
        self._every = every
        self._controllers = controllers
        self._client = client
        self._cache = cache
        self._known: dict[GroupResource, _Known] = {}
        self._leaving: dict[GroupResource, asyncio.Task[None]] = {}
        """Kinds whose removed controllers still have runs. Only the same kind waits for them."""
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Runs until cancelled. The controllers are kept."""
        async with self._cache.using(DEFINITIONS) as definitions, asyncio.TaskGroup() as removing:
            with definitions.add_handler(lambda _: self._changed.set()):
                while True:
                    self._changed.clear()
                    pause = PERIOD if await self._discover(removing) else RETRY
                    if await set_within(self._changed, pause):
                        await asyncio.sleep(DEBOUNCE)
                        await self._discover(removing)
                        await asyncio.sleep(SETTLED)

    async def _discover(self, removing: asyncio.TaskGroup) -> bool:
        """Returns whether discovery succeeded."""
        try:
            kinds, silent = await self._client.discovery.all_kinds("list", "watch")
        except ApiError as error:
            _log.debug("Discovery failed; trying again", error=error)
            return False
        served = {kind.group_resource: kind for kind in kinds}
        for resource, known in list(self._known.items()):
            kind = served.get(resource)
            if kind != known.kind and not is_unknown(known.kind, kind, silent):
                del self._known[resource]
                self._leaving[resource] = removing.create_task(
                    self._remove(resource, known), name=f"removing {resource}"
                )
        for resource, kind in served.items():
            if resource not in self._known and resource not in self._leaving:
                self._add(resource, kind)
        return True

    def _add(self, resource: GroupResource, kind: Kind) -> None:
        names = []
        for every in self._every:
            try:
                controller = every.make(kind)
                if controller is not None:
                    self._controllers.add(controller)
                    names.append(controller.name)
            except Exception as error:
                _log.crash("Could not create the controller for a kind", error, kind=str(kind))
        self._known[resource] = _Known(kind, tuple(names))
        if names:
            _log.info("Adding controllers for a kind", kind=str(kind), controllers=", ".join(names))

    async def _remove(self, resource: GroupResource, known: _Known) -> None:
        for name in known.controllers:
            _log.info("A kind is no longer served; removing its controller", controller=name)
            try:
                await self._controllers.remove(name)
            except (KeyError, ValueError) as error:  # already removed, or part of a ring
                _log.warning("A controller cannot be removed", controller=name, error=error)
        del self._leaving[resource]
        self._changed.set()


def is_unknown(known: Kind, served: Kind | None, silent: Collection[str]) -> bool:
    """Whether the versions that the server does not report may still have the kind: its own version, or, if no other
    version has it, any version of its group. `served`: the kind as it is reported now.
    """
    if f"{known.group}/{known.version}" in silent:
        return True
    return served is None and any(place.partition("/")[0] == known.group for place in silent)


def split(controllers: Sequence[Any]) -> tuple[list[Any], list[EveryKind]]:
    """Splits controllers from `EveryKind`s. Raises TypeError if this is not a list of them."""
    if isinstance(controllers, Controller):
        check_controllers(controllers)
    every = [each for each in controllers if isinstance(each, EveryKind)]
    return [each for each in controllers if not isinstance(each, EveryKind)], every
