"""SIGTERM ends the commands that run until somebody stops them."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterator

import pytest

from kubeshard.cli.kubectl.asking import stop_in_order


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("sigint", [signal.default_int_handler, signal.SIG_IGN])
def test_sigterm_ends_a_command_in_order_also_where_sigint_is_ignored(sigint: signal.Handlers) -> None:
    signal.signal(signal.SIGINT, sigint)
    stop_in_order()
    left = []

    async def watch() -> None:
        try:
            asyncio.get_running_loop().call_soon(signal.raise_signal, signal.SIGTERM)
            await asyncio.sleep(10)
        finally:
            left.append("the terminal as it was")

    with pytest.raises(KeyboardInterrupt):
        asyncio.run(watch())
    assert left == ["the terminal as it was"]
