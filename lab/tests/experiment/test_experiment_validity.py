"""A run whose limit was not its controllers says so, and one on a quiet machine does not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from kubeshard_lab.experiment.processes import BackOff
from kubeshard_lab.experiment.validity import Conditions, objections

QUIET = Conditions(due=1000, late=10, bound=0, parallel=256, probes=[0.002] * 100, busy=[0.5] * 100, ended=[])


def test_a_quiet_run_is_valid() -> None:
    assert list(objections(QUIET)) == []
    assert list(objections(QUIET._replace(due=0, late=0, probes=[], busy=[]))) == []


@pytest.mark.parametrize(
    ("condition", "says"),
    [
        ({"late": 11}, "the load fell behind: 11 of 1000 requests"),
        ({"late": 11, "bound": 300}, "300 waited because 256 others were unanswered"),
        ({"probes": [0.002] * 98 + [0.7] * 2}, "the p99 of a small read took 0.70 s"),
        ({"probes": [0.002] * 98 + [math.inf] * 2}, "the p99 of a small read had no answer"),
        ({"busy": [0.95] * 6 + [0.5] * 94}, "more than 90% of a core in 6 of 100 seconds"),
        ({"ended": ["operator-1, SIGKILL"]}, "did not end it: operator-1, SIGKILL"),
    ],
)
def test_each_other_limit_is_a_sentence(condition: dict[str, Any], says: str) -> None:
    (sentence,) = objections(QUIET._replace(**condition))
    assert says in sentence


def test_all_limits_are_said() -> None:
    conditions = QUIET._replace(late=500, probes=[1.0], busy=[1.0], ended=["one", "two"])
    assert len(list(objections(conditions))) == 5


def test_a_process_is_restarted_as_a_kubelet_does() -> None:
    back_off = BackOff()
    assert [back_off.pause(1.0) for _ in range(8)] == [0.0, 10.0, 20.0, 40.0, 80.0, 160.0, 300.0, 300.0]
    assert [back_off.pause(600.0), back_off.pause(1.0)] == [0.0, 10.0]
