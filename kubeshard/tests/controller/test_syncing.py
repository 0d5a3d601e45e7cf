"""When informers are good enough to work with."""

from __future__ import annotations

import asyncio
from typing import Any

from kubeshard.controller.syncing import until_readable
from kubeshard.core.errors import ApiError, Forbidden, Unavailable
from kubeshard_lab.virtual_time import virtual_time


class Filling:
    """An informer. `last_error`: why it is not filled."""

    has_synced = False
    last_error: ApiError | None = None

    async def synced(self) -> None:
        await asyncio.get_running_loop().create_future()


@virtual_time
async def test_that_the_server_failed_does_not_show_that_this_process_may_read_a_kind() -> None:
    one, other = Filling(), Filling()
    informers: list[Any] = [one, other]
    one.last_error = other.last_error = Unavailable("it starts", code=503)
    readable = asyncio.create_task(until_readable(informers))
    await asyncio.sleep(10)
    one.has_synced = True
    await asyncio.sleep(10)
    for error in Unavailable("connection refused"), Forbidden("no", code=403):
        other.last_error = error
        await asyncio.sleep(10)
        assert not readable.done()
    other.last_error = Unavailable("conversion webhook failed", code=500)
    await asyncio.sleep(2)
    assert readable.done()
