"""Writes the files that are generated from typed sources: `deploy/`, the example of the ControllerRing's definition,
the tables of metrics in `docs/metrics.md`, and `docs/commands.md`.

    python tools/render_manifests.py [FOLDER]    # `make manifests`; default: this repository

Guaranteed: afterwards, the folders in `ROOMS` contain nothing else.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from commands_page import PATH as COMMANDS
from commands_page import commands_page
from kubeshard.core.yaml_output import as_yaml
from kubeshard.manifests.chart import chart
from kubeshard.manifests.kustomization import kustomizations
from kubeshard.manifests.output import GENERATED
from kubeshard.metrics.declared import tables
from kubeshard.monitoring import dashboards, rules
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard_lab.examples.webhosting.dashboard import NAME as WEBHOSTING
from kubeshard_lab.examples.webhosting.dashboard import webhosting

ROOT = Path(__file__).resolve().parents[1]
ROOMS = ("deploy/helm", "deploy/kustomize", "deploy/monitoring")
METRICS = "docs/metrics.md"


def rendered() -> Mapping[str, str]:
    """The text of each file, by its path in the repository."""
    return {
        "examples/controllerring_crd.yaml": GENERATED + as_yaml(controller_ring_crd()),
        **{f"{ROOMS[0]}/{path}": text for path, text in chart().items()},
        **{f"{ROOMS[1]}/{path}": text for path, text in kustomizations().items()},
        f"{ROOMS[2]}/rules.yaml": GENERATED + as_yaml(rules()),
        **{
            f"{ROOMS[2]}/{name}.json": f"{json.dumps(made, indent=1)}\n"
            for name, made in {**dashboards(), WEBHOSTING: webhosting()}.items()
        },
        METRICS: re.split("^## ", (ROOT / METRICS).read_text(), maxsplit=1, flags=re.M)[0] + tables(),
        COMMANDS: commands_page(ROOT),
    }


def write(folder: Path) -> None:
    files = rendered()
    for room in ROOMS:
        shutil.rmtree(folder / room, ignore_errors=True)
    for path, text in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text)


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT)
