"""A run over a folder goes on after what fails, says what it left out, and continues where it stopped."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from conformance_api import Answer, Api
from conformance_kinds import SITE_DEFINITION, site
from corpus import Comparison, Journal, read
from differ import TOKEN

from kubeshard.runtime.transport import TransportTimeout
from kubeshard_apiserver import ApiServer, Front, Identity, InMemoryTransport, User

NAME = SITE_DEFINITION["metadata"]["name"]


class Stuck(Api):
    """Does not answer requests about one object."""

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        if path.endswith("/o1") and method == "PATCH":
            raise TransportTimeout("no answer")
        return await super().call(method, path, body, **more)


def server(kind: type[Api] = Api) -> Api:
    made = ApiServer()
    gate = Identity(made, tokens={TOKEN: User("admin", "admin", ("system:masters",))})
    return kind(InMemoryTransport(Front(made, gate=gate)), TOKEN)


async def test_a_request_without_an_answer_leaves_out_one_case(tmp_path: Path) -> None:
    items = [site(f"s{number}", {"theme": "dark"}) for number in range(3)]
    (tmp_path / "all.json").write_text(
        json.dumps({"kind": "List", "items": [SITE_DEFINITION, *items, site(apiVersion="old/v1")]})
    )
    (tmp_path / "template.yaml").write_text("{{ a: b }}: [")
    corpus = read(tmp_path, most=3)
    comparison = Comparison(server(), server(Stuck), corpus, [NAME])
    await comparison.compare(changes=1)
    (outcome,) = comparison.outcomes.values()
    assert (outcome.objects, outcome.differing, outcome.differs) == (3, set(), False)
    assert {text.partition(":")[0] for text in outcome.left} == {"object 1, change 0", "object 1, change 1"}
    assert corpus.left["files that are no YAML, as templates"] == 1

    journal = Journal(tmp_path / "journal")
    journal.add(outcome)
    assert Journal(tmp_path / "journal").outcomes == {NAME: outcome}


async def test_a_definition_whose_names_another_one_has_is_compared_and_not_waited_for(
    tmp_path: Path,
) -> None:
    group, names = SITE_DEFINITION["spec"]["group"], {**SITE_DEFINITION["spec"]["names"], "plural": "plots"}
    other = {
        **SITE_DEFINITION,
        "metadata": {"name": f"plots.{group}"},
        "spec": {**SITE_DEFINITION["spec"], "names": names},
    }
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "items": [SITE_DEFINITION, other]}))
    comparison = Comparison(server(), server(), read(tmp_path, most=1), [NAME, f"plots.{group}"])
    await comparison.compare(changes=0)
    assert [(each.differs, each.left) for each in comparison.outcomes.values()] == [(False, [])] * 2


class Silent(Api):
    """Publishes no document of version 2."""

    async def call(self, method: str, path: str, body: Any = None, **more: Any) -> Answer:
        return await super().call(method, path.replace("/openapi/v2", "/openapi/none"), body, **more)


async def test_a_schema_that_one_server_does_not_publish_leaves_out_its_definition_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "all.json").write_text(json.dumps(SITE_DEFINITION))
    comparison = Comparison(server(), real := server(), read(tmp_path, most=1), [NAME])
    await comparison.compare(changes=0)
    monkeypatch.setattr("corpus._PATIENCE", 0.1)
    monkeypatch.setattr("corpus._POLL", 0.01)
    comparison.apis = comparison.apis[0], Silent(real.transport, TOKEN)
    await comparison.compare_published([SITE_DEFINITION])
    (outcome,) = comparison.outcomes.values()
    assert (outcome.differs, len(outcome.left)) == (False, 1)
    assert "is not in that of the real server" in outcome.left[0]
