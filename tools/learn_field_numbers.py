"""Reads the protobuf field numbers from the Go sources of the Kubernetes API: `make types`.

Only facts are kept: names of types and fields, numbers, and which fields are pointers, so that absent differs from
zero. The sources are those that `make kube` has fetched. The result is a file of `kubeshard_apiserver.schema`, whose
format is documented in `schema.protobuf`.
"""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from importlib.resources import files
from pathlib import Path

_MODULES = {
    "k8s.io/api": "*/v*/types*.go",
    "k8s.io/apimachinery": "pkg/apis/meta/v1/types.go",
    "k8s.io/apiextensions-apiserver": "pkg/apis/apiextensions/v1/types*.go",
}
_STRUCT = re.compile(r"^type (\w+) struct \{(.*?)^\}", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"^\s+(?:\w+\s+)?([^\s/]+)\s+`([^`]*)`", re.MULTILINE)
_TAG = re.compile(r'(json|protobuf):"([^"]*)"')


def learn(known: Mapping[str, object]) -> dict[str, dict[str, str]]:
    """Fields by type and number, for the types in `known` and those that they contain."""
    numbers = {}
    for path in _sources():
        package = ".".join(path.parts[-3:-1])
        for struct, body in _STRUCT.findall(path.read_text()):
            numbers[f"{package}.{struct}"] = {
                tags["protobuf"].split(",")[1]: _said(package, go_type, tags["json"].split(",")[0])
                for go_type, tag in _FIELD.findall(body)
                if {"json", "protobuf"} <= (tags := dict(_TAG.findall(tag))).keys()
            }
    parts = {said[1:] for fields in numbers.values() for said in fields.values() if said.startswith("+")}
    return {name: numbers[name] for name in sorted(numbers) if name in known or name in parts}


def _said(package: str, go_type: str, name: str) -> str:
    """`*name` for a pointer, `+type` for a struct whose fields are promoted."""
    if not name:
        return f"+{package}.{go_type}" if "." not in go_type else f"+meta.v1.{go_type.partition('.')[2]}"
    return f"*{name}" if go_type.startswith("*") else name


def _sources() -> Iterator[Path]:
    build = Path(__file__).parent / "control_plane" / "kubernetes"
    for module, pattern in _MODULES.items():
        command = ["go", "list", "-mod=mod", "-m", "-f", "{{.Dir}}", module]
        found = subprocess.run(command, cwd=build, capture_output=True, text=True, check=True)  # noqa: S603
        folder = found.stdout.strip()
        yield from sorted(Path(folder).glob(pattern))


if __name__ == "__main__":
    folder = Path(str(files("kubeshard_apiserver.schema")))
    learned = learn(json.loads((folder / "types.json").read_text()))
    lines = [
        f"{json.dumps(name)}:{json.dumps(fields, separators=(',', ':'))}" for name, fields in learned.items()
    ]
    (folder / "field_numbers.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")
