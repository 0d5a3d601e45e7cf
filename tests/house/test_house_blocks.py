"""Every code block of the documents is run, or parsed by the program that would run it, or says why not."""

from __future__ import annotations

import asyncio
import inspect
import json
import re
import sys
import tomllib
from collections.abc import AsyncIterator
from types import ModuleType
from typing import Any

import click
import pytest
import yaml
from pages import Block, all_blocks, blocks_of, programs
from source_tree import ROOT, is_a_test

from commands_page import PROGRAMS
from kubeshard.cli.kubectl.program import shard
from kubeshard.cli.program import cli
from kubeshard.client import Client
from kubeshard.core import ApiError
from kubeshard.core.errors import KubeshardError
from kubeshard.manager.config_file import parse_config
from kubeshard.manifests import values
from kubeshard.sharder import config as sharder
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.cli.measure import parse_queries
from kubeshard_lab.examples.webhosting import config as webhosting

PROVEN = {
    "docs/admission-webhooks.md": (
        "tests",
        "webhook/test_webhook_documents.py::test_the_test_of_the_document_passes",
    ),
    "docs/coming-from/": ("tests", "examples/test_how_to_pages.py::test_the_examples_of_all_pages_pass"),
    "docs/coming-from/kopf.md": ("py", "examples/test_how_to_pages.py::test_what_is_shown_of_kopf_is_kopf"),
    "docs/how-to/": ("tests", "examples/test_how_to_pages.py::test_the_examples_of_all_pages_pass"),
    "docs/project/features.md": (
        "tests",
        "examples/test_how_to_pages.py::test_the_examples_of_all_pages_pass",
    ),
    "docs/install.md": (
        "sh console",
        "install/test_install_page.py::test_every_block_is_in_a_section_that_is_run",
    ),
    "docs/shard-in-any-language.md": (
        "bash",
        "kube/test_shard_page_kube.py::test_the_pages_commands_run_in_order_and_leave_nothing",
    ),
    "docs/testing-your-operator.md": ("tests", "testing/test_testing_page.py::test_its_examples_pass"),
    "docs/sharding-tutorial.md": (
        "sh diff",
        "examples/test_tutorial.py::test_the_tutorial_of_a_ring_can_be_followed_from_one_replica_to_five_and_to_labels",
    ),
    "docs/tutorial.md": (
        "sh python diff",
        "examples/test_tutorial.py::test_the_tutorial_can_be_followed_from_its_first_command_to_its_last",
    ),
}
"""Blocks that another test runs unchanged: those in these languages, and the `tests` in them."""

BLOCKS = all_blocks()
CONFIGS = {module.KIND: module for module in (sharder, webhosting)}
CONFIG_TYPES = {sharder.KIND: sharder.SharderConfig, webhosting.KIND: webhosting.OperatorConfig}
GOALS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
THE_READERS = re.compile(r"Path '[^']*' does not exist")
"""Files of the reader. `wrong` looks for those of this repository."""

OURS = re.compile(r"^(?:\$ )?(?:\.venv/bin/)?(?:kubeshard|kubectl|make) ", re.M)


def proven(block: Block, what: str) -> bool:
    return any(block.page.startswith(place) and what in known.split() for place, (known, _) in PROVEN.items())


async def mistake(block: Block, client: Client) -> str:
    """Returns what is wrong with the block, or that nothing runs it; "" if all is well. Programs are run by page."""
    if block.excuse is not None:
        return "" if len(block.excuse) > 10 else "gives no reason for not being run"
    try:
        match block.language:
            case "sh" | "bash" | "console":
                known = [wrong(command) for command in block.commands]
                if "" in known or any(known) or proven(block, block.language):
                    return "; ".join(filter(None, known))
                return "no test runs these commands"
            case "yaml":
                return "; ".join([fault async for fault in refused(block.text, client)])
            case "json" | "toml":
                {"json": json, "toml": tomllib}[block.language].loads(block.text)
            case "text" if OURS.search(block.text):
                return "a command: its language is sh"
            case "python" if block.title and not proven(block, "python"):
                return f"no test writes {block.title}"
            case language if language not in ("python", "text") and not proven(block, language):
                return f"no test runs a block of {language or 'no language'}"
    except (ValueError, yaml.YAMLError, KubeshardError) as error:
        return str(error)
    return ""


def wrong(command: list[str]) -> str | None:
    """Returns what is wrong with one of our command lines, or ""; None for a program that is not ours."""
    missing = [
        word
        for word in command
        if re.match(r"(examples|deploy)/\S", word) and not (ROOT / word.partition(":")[0]).exists()
    ]
    if missing:
        return f"{', '.join(missing)}: no such file"
    match [command[0].removeprefix(".venv/bin/"), *command[1:]]:
        case ["kubeshard", *words]:
            return parsed(cli, words)
        case ["kubectl", "shard", *words] | ["kubectl-shard", *words]:
            return parsed(shard, words)
        case ["make", *words]:
            return make(words)
        case ["python", "-m", module, *words] if f"python -m {module}" in PROGRAMS:
            return parsed(PROGRAMS[f"python -m {module}"], words)
    return None


def parsed(command: click.Command, words: list[str]) -> str:
    if isinstance(command, click.Group) and not words:
        return ""
    try:
        with command.make_context(command.name, list(words)) as context:
            if isinstance(command, click.Group) and (rest := [*context._protected_args, *context.args]):
                _, chosen, rest = command.resolve_command(context, rest)
                return parsed(chosen, rest) if chosen else f"no command {rest[0]}"
    except click.UsageError as error:
        what = error.format_message()
        return "" if THE_READERS.search(what) else f"{' '.join(words)}: {what}"
    except click.exceptions.Exit:  # an option that answers at once, such as --list
        return ""
    return ""


def make(words: list[str]) -> str:
    for goal in words:
        variable, given, value = goal.partition("=")
        if not given and goal not in GOALS:
            return f"make {goal}: no such target"
        if given and f"$({variable})" not in (ROOT / "Makefile").read_text():
            return f"{variable}: the Makefile has no such variable"
        if given and "demo" in words:
            return parsed(cli, ["demo", *value.split()])
    return ""


async def refused(text: str, client: Client) -> AsyncIterator[str]:
    for manifest in yaml.safe_load_all(text):
        if isinstance(manifest, dict) and "queries" in manifest:
            parse_queries([manifest], "the block")
        elif isinstance(manifest, dict) and manifest.keys() >= {"image", "about"}:
            values.chosen(values.OperatorValues, manifest)
        elif not isinstance(manifest, dict) or not {"apiVersion", "kind"} <= manifest.keys():
            yield "neither an object nor a configuration"
        elif config := CONFIGS.get(manifest["kind"]):
            _, unknown = parse_config(
                text, CONFIG_TYPES[config.KIND], api_version=config.API_VERSION, kind=config.KIND
            )
            for sentence in unknown:
                yield sentence
        else:
            group, _, version = manifest["apiVersion"].rpartition("/")
            kind = await client.discovery.kind(group, kind=manifest["kind"], version=version)
            path = kind.path(manifest["metadata"].get("namespace", "default" if kind.namespaced else ""))
            try:
                await client.raw(
                    "POST", f"{path}?dryRun=All&fieldValidation=Strict", json.dumps(manifest).encode()
                )
            except ApiError as error:
                yield error.message


@pytest.fixture
async def client() -> Any:
    """A client of an empty server that serves rings and has the sharder's namespace."""
    api = MemoryApi()
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "sharding-system"}}
    await api.install(controller_ring_crd(), namespace)
    async with api.client() as client:
        yield client


async def test_every_block_is_run_or_read_by_what_would_run_it_or_says_why_not(client: Client) -> None:
    assert not [f"{block.place}: {fault}" for block in BLOCKS if (fault := await mistake(block, client))]
    excused = [f"{block.place}: {block.excuse}" for block in BLOCKS if block.excuse]
    print(f"{len(BLOCKS)} blocks, {len(excused)} of them not run:", *excused, sep="\n")


@pytest.mark.parametrize("page", sorted({block.page for block in BLOCKS if block.language == "python"}))
def test_the_programs_of_a_page_run_one_after_the_other(page: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """So are the tests that it shows, unless they use fixtures: another test runs those."""
    blocks = [block for block in BLOCKS if block.page == page]
    for program, _ in programs(page, blocks):
        module = ModuleType("a_page")
        monkeypatch.setitem(sys.modules, module.__name__, module)  # annotations are resolved in it
        exec(compile(program, page, "exec"), vars(module))
        for name, test in list(vars(module).items()):
            if not name.startswith("test_"):
                continue
            if inspect.signature(test).parameters:
                assert proven(blocks[0], "tests"), name
            elif inspect.isawaitable(done := test()):
                asyncio.run(done)


@pytest.mark.parametrize("place", PROVEN)
def test_what_another_test_runs_it_runs(place: str) -> None:
    languages, proof = PROVEN[place]
    file, test = proof.split("::")
    assert is_a_test(file, test)
    for language in languages.split():
        assert language == "tests" or any(
            block.page == place and block.language == language for block in BLOCKS
        )


@pytest.mark.parametrize(
    "text",
    [
        "```\nls\n```",
        "```go\nfunc main() {}\n```",
        "```sh\ncurl localhost\n```",
        "```sh\nkubeshard sharder --no-such-option\n```",
        "```sh\nX=1 .venv/bin/kubeshard manifests sharder --set a=b | kubeshard no-such-command\n```",
        "```sh\nmake no-such-goal\n```",
        "```sh\nmake demo ARGS=--no-such-option\n```",
        "```sh\nkubectl apply -f examples/no_such_file.yaml\n```",
        "```console\n$ kubectl shard plan --no-such-option \\\n    --shards 4\nRESOURCE\n```",
        "```text\n$ kubectl get nodes\n```",
        "```yaml\na: b\n```",
        "```yaml\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\nnoSuchField: {}\n```",
        "```yaml\napiVersion: config.sharding.timebertt.dev/v1alpha1\nkind: SharderConfig\nnoSuchField: 1\n```",
        "<!-- not run: -->\n```sh\ncurl localhost\n```",
    ],
)
async def test_a_block_that_is_wrong_is_found(text: str, client: Client) -> None:
    (block,) = blocks_of("docs/page.md", f"# A page\n\n{text}\n")
    assert await mistake(block, client)


def test_a_program_that_would_start_something_is_only_read() -> None:
    page = "# A page\n\n```python\nx = 1\n```\n\n```python\nasyncio.run(main())\nno_such_name\n```\n"
    ((program, moved),) = programs("docs/page.md", blocks_of("docs/page.md", page))
    names: dict[str, Any] = {}
    exec(program, names)
    assert names["x"] == 1
    assert program.splitlines()[9 + moved - 1].strip() == "no_such_name"
