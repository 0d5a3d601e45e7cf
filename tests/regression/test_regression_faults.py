"""Each kind of fault of a simulation can be asked for by itself, happens then, and violates nothing."""

import re
from pathlib import Path

import pytest

from kubeshard.simulation.faults.injection import AIMED, KINDS, summary
from kubeshard.simulation.running import explore

pytestmark = pytest.mark.regression

NEED_OTHERS = {"webhook": "recreate"}
"""What has to happen for a fault to matter: webhooks are asked when objects are created."""


@pytest.mark.system
@pytest.mark.parametrize("kind", sorted(KINDS.keys() - AIMED))
def test_a_fault_that_was_asked_for_happens_and_violates_nothing(kind: str) -> None:
    kinds, effects = [kind, *([NEED_OTHERS[kind]] if kind in NEED_OTHERS else ())], 0
    for seed in (1, 2, 3):
        result = explore(seed, 3, kinds, objects=10)
        assert result.breaks == []
        if effects := result.counts[f"effects: {kind}"]:
            break
    assert effects


def test_the_page_lists_the_faults_by_family() -> None:
    def family(kind: str) -> str:
        return KINDS[kind].__module__.rpartition(".")[2]

    page = Path(__file__).parents[2] / "docs" / "reliability.md"
    rows = [line for line in page.read_text().splitlines() if re.match(r"\| `\w+` ", line)]
    assert rows == [
        f"| `{kind}` | {family(kind)}{', aimed' if kind in AIMED else ''} | {summary(kind)} |"
        for kind in sorted(KINDS, key=lambda kind: (family(kind), kind))
    ]
