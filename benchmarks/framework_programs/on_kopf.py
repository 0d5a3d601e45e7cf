"""The operator of `on_kubeshard.py` on kopf. Run: `kopf run` with BENCHMARK=no-ops, events, handlers
or statuses.

Handlers of creations and updates are what reconcilers are: retried, one at a time for an object, and kopf remembers in
the object what they have seen. A handler of events has none of that.
"""

from __future__ import annotations

import os
from typing import Any

import kopf

GAUGES = ("bench.kubeshard.dev", "v1", "gauges")


@kopf.on.startup()
def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
    settings.posting.enabled = False  # the other operator posts no events either


if os.environ["BENCHMARK"] in ("events", "handlers"):

    @kopf.on.event(*GAUGES)
    async def event(**_: Any) -> None:
        pass

elif os.environ["BENCHMARK"] == "no-ops":

    @kopf.on.create(*GAUGES)
    @kopf.on.update(*GAUGES, field="spec")
    async def no_op(**_: Any) -> None:
        pass

else:

    @kopf.on.create(*GAUGES)
    @kopf.on.update(*GAUGES, field="spec")
    async def status(spec: kopf.Spec, patch: kopf.Patch, **_: Any) -> None:
        patch.status["seen"] = spec["value"]
