"""The Go project's tool and `kubeshard measure` write the same bytes from the same answers."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner
from fake_prometheus import fake_prometheus, matrix, vector

from kubeshard.cli.program import cli

pytestmark = pytest.mark.interop

NOW = 1_700_000_000.0
VALUES = (
    "0.02491034482758621",
    "5",
    "-0",
    "1e-07",
    "1e+21",
    "1.5e+300",
    "NaN",
    "+Inf",
    "-Inf",
    "0.30000000000000004",
)
LABELS = (
    "plain",
    "",
    "a,b",
    'say "a"',
    "line\nline",
    "line\rline",
    " a",
    "\ta",
    "\xa0a",
    "\x1ca",
    "a ",
    "\\.",
    "'é",
)


async def test_both_write_the_same_bytes(go_measure: Path, tmp_path: Path) -> None:
    points = [(NOW + 0.999 + 15 * number, value) for number, value in enumerate(VALUES)]
    file = tmp_path / "queries.yaml"
    queries = [
        {"name": "values", "query": "values"},
        {"name": "labels", "type": "instant", "query": "labels"},
        {"name": "ragged", "query": "ragged", "slo": 1},
    ]
    file.write_text(yaml.safe_dump({"queries": queries}))
    async with fake_prometheus() as server:
        server.answers["values"] = matrix(({"__name__": "up", "pod": "a"}, points))
        server.answers["labels"] = vector(*[({"of": text}, (NOW, "1")) for text in LABELS])
        server.answers["ragged"] = matrix(({"b": "1", "Z": "2"}, points[:1]), ({"a": "3"}, points[:2]))
        options = (str(file), "--prometheus-url", server.url, "--start=1700000000", "--end=1700000900")
        ran = await asyncio.create_subprocess_exec(go_measure, *options, "-o", f"{tmp_path}/go")
        theirs = await ran.wait()
        ours = await asyncio.to_thread(
            CliRunner().invoke, cli, ["measure", *options, "-o", f"{tmp_path}/ours"]
        )
    asked = [(path, {**parameters, "timeout": ""}) for path, parameters in server.asked]
    assert asked[: len(queries)] == asked[len(queries) :]
    assert (theirs, ours.exit_code) == (1, 1)  # the level is not kept
    for query in queries:
        written = [(tmp_path / who / f"{query['name']}.csv").read_bytes() for who in ("go", "ours")]
        assert written[0] == written[1], query["name"]
