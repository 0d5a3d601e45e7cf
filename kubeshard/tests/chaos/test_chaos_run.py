"""Which scenarios are chosen, without a cluster."""

from __future__ import annotations

import pytest
from chaos_run import chosen_scenarios


def test_a_scenario_that_is_not_there_in_the_mode_is_refused() -> None:
    assert [each.name for each in chosen_scenarios("C11-assignment", "ranges")] == ["C11-assignment"]
    with pytest.raises(SystemExit, match="no scenario C11-assignment in mode service"):
        chosen_scenarios("C1,C11-assignment", "service")
