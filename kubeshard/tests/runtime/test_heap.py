from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from kubeshard.runtime import heap
from kubeshard.runtime.heap import heap_trimming

MIB = 1 << 20
PATIENCE = 10.0


def resident() -> int:
    status = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in status if line.startswith("VmRSS")).split()[1]) * 1024


@pytest.mark.skipif(heap._glibc() is None, reason="the C library is not glibc 2.33 or later")
def test_memory_that_is_free_between_used_blocks_is_returned() -> None:
    blocks = [bytes(3000 + number % 3000) for number in range(20_000)]
    used = blocks[::20]
    before = resident()
    del blocks
    with heap_trimming(period=0.01):
        deadline = time.monotonic() + PATIENCE
        while resident() > before - 40 * MIB:
            assert time.monotonic() < deadline, f"{(before - resident()) / MIB:.0f} MiB returned"
            threading.Event().wait(0.01)
    assert all(block[-1] == 0 for block in used)


def test_without_glibc_nothing_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heap, "_glibc", lambda: None)
    before = threading.active_count()
    with heap_trimming(period=0.001):
        assert threading.active_count() == before


def test_the_thread_ends_with_the_block_without_waiting_for_its_period() -> None:
    before, began = threading.active_count(), time.monotonic()
    with heap_trimming(period=600):
        pass
    assert threading.active_count() == before
    assert time.monotonic() - began < PATIENCE
