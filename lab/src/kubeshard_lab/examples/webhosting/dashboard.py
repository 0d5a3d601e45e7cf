"""The example's dashboard for Grafana: Websites, where they are, and how far they have come."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from kubeshard.monitoring.grafana import Chart, Step, dashboard, variable

NAME = "webhosting"

_CHOSEN = '{namespace=~"$project"}'
_SHARD = f"max by (namespace, website, shard, drain) (kube_website_shard{_CHOSEN})"
"""While a Website is handed over, two shards may know it."""


def webhosting() -> dict[str, Any]:
    """The dashboard in the form that Grafana imports."""
    rows = {"Overview": list(_now()), "Websites": list(_over_time())}
    project = variable("project", "Project", "label_values(kube_website_info, namespace)")
    return dashboard(NAME, "kubeshard: webhosting example", rows, [project])


def _now() -> Iterator[Chart]:
    one = "max by (namespace, website)"
    yield Chart(
        "Websites",
        "That some shard has in memory.",
        "short",
        [(f"count({one} (kube_website_info{_CHOSEN}))", "Websites")],
        number=(Step(None, "green"),),
    )
    ready = f'{one} (kube_website_status_phase{{namespace=~"$project",phase="Ready"}})'
    yield Chart(
        "Websites that are not ready",
        "Their Deployment is not available, or they have an error.",
        "short",
        [(f"count(({ready}) == 0) or vector(0)", "Websites")],
        number=(Step(None, "green"), Step(1, "yellow"), Step(100, "red")),
    )
    generation, observed = (
        f"{one} (kube_website_{name}_generation{_CHOSEN})" for name in ("metadata", "observed")
    )
    yield Chart(
        "Changes that are not done",
        "Websites whose last change of the specification has not been reconciled.",
        "short",
        [(f"count(({generation}) > ({observed})) or vector(0)", "Websites")],
        number=(Step(None, "green"), Step(10, "yellow"), Step(1000, "red")),
    )
    yield Chart(
        "Websites that are handed over",
        "Their shard was asked to release them.",
        "short",
        [(f"count({_SHARD.replace(_CHOSEN, _DRAINED)}) or vector(0)", "Websites")],
        number=(Step(None, "green"), Step(100, "yellow")),
    )
    yield Chart(
        "Shards",
        "That have Websites.",
        "short",
        [(f"count(count by (shard) ({_SHARD}))", "shards")],
        number=(Step(None, "red"), Step(1, "yellow"), Step(2, "green")),
    )


_DRAINED = '{namespace=~"$project",drain="true"}'


def _over_time() -> Iterator[Chart]:
    one, info = "max by (namespace, website", f"(kube_website_info{_CHOSEN})"
    for title, about, query, label in (
        (
            "Websites by shard",
            "The hash ring gives each shard about the same number.",
            f"count by (shard) ({_SHARD})",
            "shard",
        ),
        (
            "Websites by phase",
            "Ready, Pending, Error or Terminating.",
            f"sum by (phase) ({one}, phase) (kube_website_status_phase{_CHOSEN}))",
            "phase",
        ),
        (
            "Websites by theme",
            "A changed Theme makes the operator reconcile all of its Websites.",
            f"count by (theme) ({one}, theme) {info})",
            "theme",
        ),
        (
            "Websites by project",
            "A project is a namespace.",
            f"count by (namespace) ({one}) {info})",
            "namespace",
        ),
    ):
        yield Chart(title, about, "short", [(query, f"{{{{{label}}}}}")], wide=label == "shard")
