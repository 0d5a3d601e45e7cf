"""Prometheus in a world on virtual time: it scrapes all processes, and promtool evaluates rules on the samples."""

from __future__ import annotations

import asyncio
import math
import re
import shutil
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from prometheus_client import generate_latest
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from kubeshard.metrics.declared import METRICS
from kubeshard.monitoring import rules
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.processes import Process

INTERVAL = 15
"""Seconds between two scrapes, and between two evaluations of the rules."""

Labels = tuple[tuple[str, str], ...]


def scraped(process: Process) -> list[Metric]:
    """Returns the current content of the process's `/metrics`."""
    assert process.manager is not None
    registry: Any = SimpleNamespace(collect=process.manager.metrics.families)
    return list(text_string_to_metric_families(generate_latest(registry).decode()))


def named(text: str) -> set[str]:
    """Returns the names of the series in an expression."""
    words = set(re.findall(r"[a-z_][a-z0-9_]+", re.sub(r'"[^"]*"', "", text)))
    return words & {sample for metric in METRICS for sample in metric.samples}


class Prometheus:
    """`samples` are the names of the series to keep."""

    def __init__(self, world: SimulatedCluster, samples: Collection[str]) -> None:
        self._world = world
        self._samples = samples
        self._series: dict[tuple[str, Labels], list[str]] = {}
        self.scrapes = 0

    async def run(self) -> None:
        while True:
            present = set()
            for process in list(self._world.processes.values()):
                if not process.dead and not process.stopped:
                    present |= set(self._note(process))
            self.scrapes += 1
            for key, values in self._series.items():
                if key not in present:
                    gone = bool(values) and values[-1] not in ("stale", "_")
                    values.append("stale" if gone else "_")
            await asyncio.sleep(INTERVAL)

    def _note(self, process: Process) -> Iterator[tuple[str, Labels]]:
        job = "sharder" if process.name.startswith("x") else "shard"
        target = (("instance", process.name), ("job", job))
        for family in scraped(process):
            for sample in family.samples:
                if sample.name not in self._samples or math.isnan(sample.value):
                    continue
                key = sample.name, (*target, *sorted(sample.labels.items()))
                values = self._series.setdefault(key, ["_"] * self.scrapes)
                values.append(repr(sample.value))
                yield key

    @property
    def input_series(self) -> list[dict[str, str]]:
        """Returns the samples in promtool's format."""
        return [
            {
                "series": f"{name}{{{','.join(f'{label}={_quoted(value)}' for label, value in labels)}}}",
                "values": " ".join(values),
            }
            for (name, labels), values in self._series.items()
        ]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def promtool() -> str:
    found = shutil.which("promtool")
    if found is None:
        pytest.skip("there is no promtool: install Debian's package prometheus")
    return found


def evaluated(series: list[dict[str, str]], scrapes: int, expectations: dict[str, bool], folder: Path) -> str:
    """Returns promtool's errors from evaluating the rules on the scrapes: "" if exactly the expected alerts fired at
    some time. `expectations`: by name of the alert; `""` stands for any alert at all.
    """
    window = f"{scrapes * INTERVAL // 60}m"
    found = {_fired(alert, window, told=not fires): fires for alert, fires in expectations.items()}
    return unlike(series, scrapes, found, folder)


def unlike(series: list[dict[str, str]], scrapes: int, found: dict[str, bool], folder: Path) -> str:
    """Returns promtool's errors from evaluating the rules and expressions on the scrapes: "" if those that are expected
    to find something are 1, and the others find nothing.
    """
    assert series
    minutes = f"{scrapes * INTERVAL // 60}m"
    (folder / "rules.yaml").write_text(yaml.safe_dump(rules()))
    test: dict[str, Any] = {
        "rule_files": ["rules.yaml"],
        "evaluation_interval": f"{INTERVAL}s",
        "tests": [
            {
                "interval": f"{INTERVAL}s",
                "input_series": series,
                "promql_expr_test": [
                    {
                        "expr": expression,
                        "eval_time": minutes,
                        "exp_samples": [{"labels": "{}", "value": 1}] if something else [],
                    }
                    for expression, something in found.items()
                ],
            }
        ],
    }
    (folder / "test.yaml").write_text(yaml.safe_dump(test, width=1_000_000))
    run = subprocess.run(
        [promtool(), "test", "rules", "test.yaml"], cwd=folder, capture_output=True, text=True, timeout=60
    )
    return "" if run.returncode == 0 else run.stdout + run.stderr


def _fired(alert: str, window: str, *, told: bool) -> str:
    which = f'alertname="{alert}",' if alert else ""
    fired = f'count_over_time(ALERTS{{{which}alertstate="firing"}}[{window}])'
    return fired if told else f"count({fired}) > bool 0"
