"""Random requests get the same answers from the embedded API server and from a real one, but for a small share.

What is left is in docs/apiserver.md. `differ.py` sends more of them, and shows each difference.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from differ import Report, compare, servers

from kubeshard_apiserver.testing.control_plane import ControlPlane

MOST = 0.005
"""The share of answers that may differ."""


@pytest.mark.kube
@pytest.mark.system
async def test_no_more_than_one_in_two_hundred_random_requests_is_answered_differently(
    control_plane: ControlPlane,
) -> None:
    report = Report()
    async with servers(control_plane) as (ours, real):
        for seed in range(101, 106):
            await compare(ours, real, seed, 400, report, f"differ-{seed}")
    assert report.requests == 2000
    assert report.accepted > 500, "too few requests make sense"
    assert report.rate <= MOST, report.causes.most_common(20)
