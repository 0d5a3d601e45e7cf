"""Gives memory that is free back to the operating system.

After a burst - a thousand objects that move, three hundred reviews at once - most of the heap is free, but glibc keeps
it: it returns only what is free at the top of the heap, and there is always something that was allocated last. So a
program would stay for ever as large as its largest burst made it, and be killed for it in a container with a limit.

Guaranteed: inside the block, a thread checks every `PERIOD` seconds and returns free pages if at least `WORTHWHILE`
bytes of the heap are free. Threads that allocate meanwhile wait, for about a millisecond per 3 MiB returned. Without
glibc 2.33 or later nothing is done. Not guaranteed: the return of memory in which a page is partly used.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Iterator
from contextlib import contextmanager

PERIOD = 30.0
WORTHWHILE = 16 << 20


@contextmanager
def heap_trimming(period: float = PERIOD, worthwhile: int = WORTHWHILE) -> Iterator[None]:
    """Returns free memory while the block runs: see the module."""
    libc, over = _glibc(), threading.Event()
    if libc is None:
        yield
        return

    def trim() -> None:
        while not over.wait(period):
            if libc.mallinfo2().fordblks >= worthwhile:
                libc.malloc_trim(0)

    thread = threading.Thread(target=trim, name="heap-trimming", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class _MallocInfo(ctypes.Structure):
    """`struct mallinfo2` of malloc.h; `fordblks` is the free memory of the main heap in bytes."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in (
            *("arena", "ordblks", "smblks", "hblks", "hblkhd"),
            *("usmblks", "fsmblks", "uordblks", "fordblks", "keepcost"),
        )
    )
    fordblks: int


def _glibc() -> ctypes.CDLL | None:
    try:
        libc = ctypes.CDLL(None)
        libc.mallinfo2.restype = _MallocInfo
        libc.malloc_trim.argtypes = (ctypes.c_size_t,)
    except (AttributeError, OSError, TypeError):  # another C library, or another operating system
        return None
    return libc
