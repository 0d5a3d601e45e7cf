"""The kubectl commands in the README."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]


def test_kubectl_takes_what_the_readme_gives_it(kubectl):
    """In the README's order. Commands that change something or wait can be parsed without a shell."""
    commands = re.findall(r"^kubectl ((?:create|apply|wait) [^#\n]+)", (ROOT / "README.md").read_text(), re.M)
    assert [line.split()[0] for line in commands] == ["apply", "apply", "create", "apply", "wait", "apply"]
    for line in commands:
        kubectl(line.replace("examples/", f"{ROOT}/examples/"))
        if "first_operator.yaml" in line:
            kubectl("wait --for=condition=Established crd/pages.example.kubeshard.dev")
    assert kubectl.json("get page home")["spec"] == {"title": "Hello"}
