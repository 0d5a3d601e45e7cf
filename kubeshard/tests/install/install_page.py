"""docs/install.md, and somebody's shell to run its commands in."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from installed_cluster import Cluster

ROOT = Path(__file__).resolve().parents[3]
PAGE = ROOT / "docs" / "install.md"
OWN_PROGRAMS = {"kubeshard": "main", "kubectl-shard": "shard_main"}
"""And what each starts, of `kubeshard.cli`."""


class Shell:
    """In a clone, with the programs that the page asks for."""

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.folder = folder
        for name in ("deploy", "examples"):
            (folder / name).symlink_to(ROOT / name)
        programs = folder / ".venv" / "bin"
        programs.mkdir(parents=True)
        for name, function in OWN_PROGRAMS.items():
            file = programs / name
            file.write_text(f"#!{sys.executable}\nfrom kubeshard.cli import {function}\n{function}()\n")
            file.chmod(0o755)
        path = f"{programs}:{cluster.programs}:{os.environ['PATH']}"
        self.environment = {
            **os.environ,
            "PATH": path,
            "KUBECONFIG": str(cluster.kubeconfig),
            **{f"HELM_{each}_HOME": str(folder / "helm") for each in ("CACHE", "CONFIG", "DATA")},
        }

    def run(self, command: str, *, allowed: int = 0) -> str:
        done = subprocess.run(
            ["bash", "-o", "pipefail", "-c", command],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert 0 <= done.returncode <= allowed, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout


def blocks() -> list[str]:
    """All of the page, but those that say why they are not run."""
    return re.findall(r"(?<!-->\n)^```\w+\n(.*?)^```", PAGE.read_text(), re.M | re.S)


def commands(heading: str, language: str = "sh") -> list[str]:
    """Of the section."""
    section = re.split(rf"^## {heading}$", PAGE.read_text(), flags=re.M)[1].split("\n## ")[0]
    found = re.findall(rf"^```{language}\n(.*?)^```", section, re.M | re.S)
    lines = [line.removeprefix("$ ") for block in found for line in block.splitlines()]
    assert lines
    return lines
