"""One failure does not affect the rest: every cell of the table (docs/guarantees.md), walked on virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from isolation_page import PAGE, ROOT, rendered
from neighbourhood import Neighbourhood
from table import TABLE, Cell, Misbehaviour, Shown, Unit, cells

from kubeshard_lab.simulation.cluster import SimulatedCluster, simulate

CELLS = list(cells())
ELSEWHERE = {Unit.KIND, Unit.CLUSTER, Unit.WATCH, Unit.RING, Unit.RESOURCE, Unit.SHARD}
"""Of these, `lab/tests/scenes` has shorter scenes."""
QUICK = {unit: misbehaviour for unit, misbehaviour, _ in reversed(CELLS) if unit not in ELSEWHERE} | {
    Unit.TENANT: Misbehaviour.LIES
}
"""One cell of each other unit, for `.ci/run`; the whole table takes longer, and is walked by `make test-nightly`."""


def _param(unit: Unit, misbehaviour: Misbehaviour, cell: Cell) -> Any:
    marks = [] if QUICK.get(unit) is misbehaviour else [pytest.mark.nightly]
    return pytest.param(cell, id=f"{unit.name}-{misbehaviour.name}".lower(), marks=marks)


@pytest.mark.parametrize("cell", [_param(*each) for each in CELLS])
def test_the_others_go_on_while(cell: Cell) -> None:
    async def scene() -> None:
        async with SimulatedCluster(seed=1) as world:
            neighbourhood = Neighbourhood(world)
            try:
                await walk(neighbourhood, cell)
            finally:
                neighbourhood.close()

    simulate(scene)


async def walk(neighbourhood: Neighbourhood, cell: Cell) -> None:
    await neighbourhood.begin()
    loop = asyncio.get_running_loop()
    async with cell.scene(neighbourhood):
        began = loop.time()
        while loop.time() - began < cell.lasts:
            for other in cell.others:
                await neighbourhood.goes_on(other, cell.within)
            await asyncio.sleep(cell.lasts / 4)
        assert neighbourhood.reached, "the fault never happened"
        missing = [said for said in cell.said if not neighbourhood.says(*said)]
        assert not missing, f"nobody said {missing}; {neighbourhood.story()}"
    if cell.back is not None:
        name, within = cell.back
        await neighbourhood.goes_on(name, within)
    for other in cell.others:
        await neighbourhood.goes_on(other, cell.within)
    assert neighbourhood.deaths() == {}


@pytest.mark.quick
def test_every_unit_has_an_entry_for_every_misbehaviour() -> None:
    wanted = {(unit, misbehaviour) for unit in Unit for misbehaviour in Misbehaviour}
    assert wanted == TABLE.keys()


@pytest.mark.quick
def test_a_test_that_shows_a_cell_elsewhere_exists() -> None:
    for entry in TABLE.values():
        if isinstance(entry, Shown):
            path, _, name = entry.test.partition("::")
            assert f"def {name}(" in (ROOT / "kubeshard" / "tests" / path).read_text(), entry.test


@pytest.mark.quick
def test_the_page_is_rendered_from_the_table() -> None:
    assert PAGE.read_text() == rendered(), "run `make isolation`"
