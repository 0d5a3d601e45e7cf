"""The garbage collector stops a program shortly, and leaves alone what the program has configured."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kubeshard.runtime.garbage_collection import COLLECT_AFTER, FULL, MIDDLE, YOUNG, spare_the_collector


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


def test_a_run_that_is_not_full_looks_at_few_objects_however_many_were_created() -> None:
    looked: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            looked.append(sum(len(gc.get_objects(generation=each)) for each in range(info["generation"] + 1)))
            assert info["generation"] < 2

    gc.set_threshold(700, 10, 10)
    spare_the_collector()
    gc.callbacks.append(note)
    try:
        kept = [[number] for number in range(50 * YOUNG)]
    finally:
        gc.callbacks.remove(note)
    assert len(kept) == 50 * YOUNG
    assert max(looked) > 2 * YOUNG
    assert max(looked) <= 1.1 * YOUNG * (MIDDLE + 2)


@pytest.mark.parametrize("youngest", [COLLECT_AFTER + 1, 1_000_000])
def test_a_program_that_collects_more_rarely_keeps_its_settings(youngest: int) -> None:
    gc.set_threshold(youngest, 10, 10)
    spare_the_collector()
    assert gc.get_threshold() == (youngest, 10, 10)


def test_a_program_that_collects_more_often_does_not() -> None:
    gc.set_threshold(700, 10, 10)
    spare_the_collector()
    assert gc.get_threshold() == (YOUNG, MIDDLE, FULL)
