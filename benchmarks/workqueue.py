"""The cost of the work queue's guarantees: its throughput beside a naive peer, interleaved in the same run.

    python benchmarks/workqueue.py [--keys 20000] [--rounds 7]

The peer is what one would write by hand: an `asyncio.Queue`, and a set to avoid duplicates. It has no priorities,
delays, retries, reasons, metrics or shutdown, and if a key is added while it is processed, the peer hands it to a
second worker at once, which is what a work queue exists to prevent. Prints the medians and the spread of the CPU time
per key, and the ratio.

There are four loads: keys that are added while no worker runs and then drained by 8 workers; keys that are added one
by one to waiting workers; one hot key that is added a hundred times per processing; and keys that are added with
delays of some milliseconds.

Further rows use options: every other key at the priority of the initial list, turns for 100 tenants, a reason with
each add, and a burst of triggers per key. Their ratio is to the queue with default options.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import statistics
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

from kubeshard.runtime.world import REAL_WORLD
from kubeshard.workqueue import LOW, NORMAL, Debounce, ItemExponential, Reason, RoundRobin, WorkQueue

WORKERS = 8


class Subject(Protocol):
    def add(self, key: int) -> None: ...

    def get(self) -> AbstractAsyncContextManager[int]: ...


class Naive:
    def __init__(self) -> None:
        self._queue: asyncio.Queue[int] = asyncio.Queue()
        self._queued: set[int] = set()

    def add(self, key: int) -> None:
        if key not in self._queued:
            self._queued.add(key)
            self._queue.put_nowait(key)

    @asynccontextmanager
    async def get(self) -> AsyncIterator[int]:
        key = await self._queue.get()
        self._queued.discard(key)
        yield key


class Run:
    """Workers that count what they process."""

    def __init__(self, queue: Subject, expected: int) -> None:
        self.queue = queue
        self.processed = 0
        self.expected = expected
        self.finished = asyncio.Event()

    async def work(self) -> None:
        while True:
            async with self.queue.get():
                await asyncio.sleep(0)
            self.processed += 1
            if self.processed == self.expected:
                self.finished.set()

    @asynccontextmanager
    async def working(self) -> AsyncIterator[None]:
        workers = [asyncio.create_task(self.work()) for _ in range(WORKERS)]
        try:
            yield
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.wait(workers)


async def backlog(queue: Subject, keys: int) -> None:
    run = Run(queue, keys)
    for key in range(keys):
        queue.add(key)
    async with run.working():
        await run.finished.wait()


async def trickle(queue: Subject, keys: int) -> None:
    run = Run(queue, keys)
    async with run.working():
        for key in range(keys):
            queue.add(key)
            await asyncio.sleep(0)
        await run.finished.wait()


async def hot_key(queue: Subject, keys: int) -> None:
    for _ in range(keys // 100):
        for _ in range(100):
            queue.add(0)
        async with queue.get():
            await asyncio.sleep(0)


class Options:
    """The optional features of the queue that a measurement uses."""

    def __init__(self, queue: WorkQueue[int], add: Callable[[int], None]) -> None:
        self.add = add
        self.add_after = queue.add_after
        self.get = queue.get


class Later(Naive):
    """The peer with delays: it has a timer for each."""

    def add_after(self, key: int, delay: float) -> None:
        asyncio.get_running_loop().call_later(delay, self.add, key)


async def delayed(queue: Any, keys: int) -> None:
    run = Run(queue, keys)
    async with run.working():
        for key in range(keys):
            queue.add_after(key, 0.001 * (1 + key % 7))
        await run.finished.wait()


def work_queue(**options: Any) -> WorkQueue[int]:
    return WorkQueue(clock=REAL_WORLD.clock, limiter=ItemExponential(rng=REAL_WORLD.rng), **options)


def with_priorities() -> Options:
    queue = work_queue()
    return Options(queue, lambda key: queue.add(key, priority=LOW if key % 2 else NORMAL))


def with_tenants() -> Options:
    queue = work_queue(order=lambda: RoundRobin(lambda key: key % 100))
    return Options(queue, queue.add)


def with_reasons() -> Options:
    queue = work_queue()
    reason = Reason("changed", "Website")
    return Options(queue, lambda key: queue.add(key, reason))


def with_bursts() -> Options:
    queue = work_queue(debounce=Debounce(0.001, 0.01))
    return Options(queue, queue.add_debounced)


def measure(load: Callable[[Any, int], Awaitable[None]], make: Callable[[], Any], keys: int) -> float:
    async def main() -> float:
        queue = make()
        began = time.process_time()
        await load(queue, keys)
        return time.process_time() - began

    gc.collect()
    return asyncio.run(main()) / keys * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description="The work queue beside a naive peer.")
    parser.add_argument("--keys", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args()
    print(f"CPU µs per key, median (min-max) of {options.rounds} interleaved rounds of {options.keys} keys")
    for load in (backlog, trickle, hot_key, delayed):
        subjects: dict[str, Callable[[], Any]] = {"asyncio.Queue+set": Later, "WorkQueue": work_queue}
        if load is not delayed:
            subjects |= {
                "... priorities": with_priorities,
                "... tenants": with_tenants,
                "... reasons": with_reasons,
            }
        if load is hot_key:
            subjects.pop("... priorities")  # of one key
        if load in (backlog, trickle):
            subjects |= {"... bursts": with_bursts}
        costs: dict[str, list[float]] = {name: [] for name in subjects}
        for _ in range(options.rounds):
            for name, make in subjects.items():
                costs[name].append(measure(load, make, options.keys))
        for name, values in costs.items():
            peer = "WorkQueue" if name.startswith("...") else "asyncio.Queue+set"
            ratio = statistics.median(values) / statistics.median(costs[peer])
            print(f"{load.__name__:8} {name:18} {_spread(values)}  ratio {ratio:.2f}")


def _spread(values: list[float]) -> str:
    return f"{statistics.median(values):6.2f} ({min(values):.2f}-{max(values):.2f})"


if __name__ == "__main__":
    main()
