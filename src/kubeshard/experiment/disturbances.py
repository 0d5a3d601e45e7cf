"""What happens to the instances and sharders during a scenario."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from kubeshard.core.errors import ConfigurationError
from kubeshard.experiment.launches import Launch
from kubeshard.experiment.processes import Processes
from kubeshard.experiment.scenarios import Scenario
from kubeshard.experiment.setups import Programs
from kubeshard.runtime.rng import Rng, one_of

_OUTAGE = 0.2
"""The part of the time between two outages."""


class Disturbances:
    """`at_work` returns once an instance of that name works."""

    def __init__(
        self,
        scenario: Scenario,
        processes: Processes,
        programs: Programs,
        rng: Rng,
        at_work: Callable[[Sequence[Launch]], Awaitable[None]],
    ) -> None:
        self._scenario = scenario
        self._processes = processes
        self._programs = programs
        self._rng = rng
        self._at_work = at_work
        if scenario.disturbance == "outage" and programs.setup.kind != "external":
            raise ConfigurationError(
                f"--setup {programs.setup.kind} has no webhook: run {scenario.name} with --setup external"
            )

    async def run(self) -> None:
        """Until cancelled."""
        act = {
            "none": None,
            "kill": self._kill,
            "roll": self._roll,
            "outage": self._outage,
            "flap": self._flap,
        }[self._scenario.disturbance]
        loop = asyncio.get_running_loop()
        due = loop.time()
        while act is not None:
            due += self._scenario.disturbed_every
            await asyncio.sleep(due - loop.time())
            await act()

    async def _kill(self) -> None:
        """As when a pod of a Deployment is deleted: it is asked to end, and another one starts at once."""
        instances = self._processes.launches("operator")
        victim = one_of(self._rng, instances)
        other = self._programs.operator()
        self._processes.stop(victim.name, "killed", f"{other.name} takes its place")
        self._processes.start(other)

    async def _roll(self) -> None:
        """As a Deployment does: one more is started, and one of the old ones is stopped once it works."""
        for old in self._processes.launches("operator"):
            new = self._programs.operator()
            self._processes.start(new)
            await self._at_work([new])
            self._processes.stop(old.name, "rolled", f"{new.name} takes its place")

    async def _outage(self) -> None:
        sharders = self._processes.launches("sharder")
        for sharder in sharders:
            self._processes.stop(sharder.name, "stopped", "outage of the webhook")
        await asyncio.sleep(self._scenario.disturbed_every * _OUTAGE)
        while any(self._processes.runs(sharder.name) for sharder in sharders):  # noqa: ASYNC110 - other processes
            await asyncio.sleep(0.1)
        for sharder in sharders:
            self._processes.start(sharder)

    async def _flap(self) -> None:
        guest = self._programs.operator()
        self._processes.start(guest, "joined")
        await asyncio.sleep(self._scenario.disturbed_every / 2)
        self._processes.stop(guest.name, "left")
