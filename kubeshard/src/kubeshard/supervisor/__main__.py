"""The program of a supervisor. `kubeshard.manager.run` calls it, not a user."""

from __future__ import annotations

import asyncio
import sys
from argparse import REMAINDER, ArgumentParser, Namespace

from kubeshard.core.errors import ConfigurationError
from kubeshard.manager.http import HEALTH_ADDRESS, METRICS_ADDRESS, Listener
from kubeshard.runtime.logs import setup
from kubeshard.runtime.world import REAL_WORLD
from kubeshard.supervisor.supervisor import Supervisor


def main() -> int:
    parser = ArgumentParser(prog="kubeshard.supervisor")
    parser.add_argument("--processes", type=int, required=True)
    parser.add_argument("--health-address", default="0")
    parser.add_argument("--metrics-address", default="0")
    parser.add_argument("--log-level", default="info")
    parser.add_argument("--log-format", default="text")
    parser.add_argument("program", nargs=REMAINDER, help="after --")
    given = parser.parse_args()
    setup(given.log_level, given.log_format)
    try:
        return asyncio.run(_supervised(given))
    except ConfigurationError as error:
        print(f"Error: {error}", file=sys.stderr)
        return 2


async def _supervised(given: Namespace) -> int:
    health, metrics = given.health_address, given.metrics_address
    supervisor = Supervisor(
        given.program[1:],
        given.processes,
        health=Listener("health_address", health, movable=health == HEALTH_ADDRESS),
        metrics=Listener("metrics_address", metrics, movable=metrics == METRICS_ADDRESS),
        world=REAL_WORLD,
    )
    return await supervisor.run()


if __name__ == "__main__":
    sys.exit(main())
