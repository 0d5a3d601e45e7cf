"""What is read off processes: selected metrics, and percentiles of histograms."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kubeshard_lab.experiment.quantiles import Latencies
from kubeshard_lab.experiment.scrapes import Scrapes

EXPOSITION = """\
# HELP workqueue_queue_duration_seconds How long.
# TYPE workqueue_queue_duration_seconds histogram
workqueue_queue_duration_seconds_bucket{name="website",le="0.1"} 1
# HELP kube_website_info Every Website.
# TYPE kube_website_info gauge
kube_website_info{website="workqueue_"} 1
# a comment about workqueue_
process_cpu_seconds_total 1.5
"""


def test_scrapes_have_the_selected_families_as_they_were_exposed(tmp_path: Path) -> None:
    scrapes = Scrapes(tmp_path)
    scrapes.add(12.5, "operator-1", "operator", EXPOSITION)
    scrapes.add(17.5, "sharder-1", "sharder", "")
    assert (tmp_path / "scrapes.txt").read_text() == (
        "# scrape 12.500 operator-1 operator\n"
        "# HELP workqueue_queue_duration_seconds How long.\n"
        "# TYPE workqueue_queue_duration_seconds histogram\n"
        'workqueue_queue_duration_seconds_bucket{name="website",le="0.1"} 1\n'
        "process_cpu_seconds_total 1.5\n"
        "# scrape 17.500 sharder-1 sharder\n"
    )
    scrapes.close()


def exposed(fast: int, slow: int, name: str = "website") -> str:
    return "\n".join(
        f'q_bucket{{name="{name}",le="{bound}"}} {count}'
        for bound, count in (("0.1", fast), ("1", fast + slow), ("+Inf", fast + slow))
    )


def test_a_percentile_is_of_what_came_since_the_last_scrape_in_all_processes() -> None:
    found = Latencies("q", ("name", "website"))
    assert math.isnan(found.quantile(0.5))
    found.scraped("one", exposed(0, 1000))
    found.scraped("one", exposed(100, 1000))
    found.scraped("two", exposed(0, 100))
    assert found.quantile(0.5) == pytest.approx(0.1)
    assert found.quantile(0.75) == pytest.approx(0.55)
    found.scraped("two", f"{exposed(0, 100)}\n{exposed(9000, 0, 'other')}")
    assert found.quantile(1.0) == pytest.approx(0.1)


def test_a_process_that_was_restarted_counts_from_zero() -> None:
    found = Latencies("q", ("name", "website"))
    found.scraped("one", exposed(500, 500))
    found.scraped("one", exposed(0, 10))
    assert found.quantile(0.5) == pytest.approx(0.55)
