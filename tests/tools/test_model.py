"""The model of the protocol knows every measure, and its table of configurations switches each of them off."""

from __future__ import annotations

import re

import check_model
from measures import MEASURES

MODEL = check_model.MODEL.read_text()
PAGE = (check_model.ROOT / "docs" / "design" / "model.md").read_text()


def test_every_measure_is_in_the_model_or_said_to_be_outside() -> None:
    modelled = set(re.findall(r'On\("([^"]+)"\)', MODEL))
    assert not modelled & set(check_model.OUTSIDE)
    assert modelled | set(check_model.OUTSIDE) == {measure.name for measure in MEASURES}


def test_the_absence_of_every_measure_of_the_model_is_expected_to_be_noticed() -> None:
    off = {name: each.violates for each in check_model.CONFIGURATIONS for name in each.off}
    assert set(off) == set(re.findall(r'On\("([^"]+)"\)', MODEL))
    assert all(off.values())


def test_the_page_of_the_model_names_every_action_and_every_measure() -> None:
    """What is neither named nor in a table of the page has no counterpart in the code that a reader could find."""
    steps = MODEL[MODEL.index("Next ==") : MODEL.index("Spec ==")]
    actions = set(re.findall(r"\b([A-Z]\w+)(?:\(| *$)", steps, re.MULTILINE)) - {"Next"}
    assert {"Acquire", "LandLate", "MoveChild"} <= actions
    assert not {action for action in actions if f"`{action}`" not in PAGE}
    assert not {
        each.off[0] for each in check_model.CONFIGURATIONS if each.off and f"| {each.off[0]} |" not in PAGE
    }


def test_the_checker_reads_the_configuration_as_it_was_meant() -> None:
    text = check_model.written(check_model.Configuration("x", off=("fence",), sharders=2, deletions=1))
    assert "Sharders = {x1, x2}\n" in text
    assert 'Off = {"fence"}\n' in text
    assert "Deletions = 1\n" in text
