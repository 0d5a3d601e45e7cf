"""When Python's garbage collector runs in kubeshard's programs.

A run stops the program for about 0.1 to 0.5 µs per object that it looks at. Python counts the objects that were
created and are not deleted: a *young* run looks at those since the last one, a *middle* run at those of several young
ones, and a full run at all. With Python's own ratios, and few young runs, a middle run looks at 240 000 objects, and
stops a program with many rings for a tenth of a second.

Guaranteed: a young or middle run looks at about `YOUNG * (MIDDLE + 2)` objects, and a full one comes after 2.5 million
new objects, as it did with Python's ratios. Not guaranteed: short full runs. What is not in a cycle needs no run.
"""

from __future__ import annotations

import gc

COLLECT_AFTER = 20_000
"""Objects that may be created before a run while a program starts. Objects from imports are not garbage."""

YOUNG, MIDDLE, FULL = 5_000, 2, 120
"""Then: created objects before a young run, young runs before a middle one, and middle ones before a full one."""


def spare_the_collector() -> None:
    """For caches: Python's settings cost a fifth of a restart. A program that collects less keeps its own."""
    if gc.isenabled() and gc.get_threshold()[0] <= COLLECT_AFTER:
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, FULL)
