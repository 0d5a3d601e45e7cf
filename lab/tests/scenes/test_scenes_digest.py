"""The same seed results in the same run, event by event, whatever the order of sets and the times of garbage
collections.
"""

import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

import simulation_digest
from kubeshard_lab.simulation.digest import Digest
from kubeshard_lab.virtual_world import SeededRng
from simulation_digest import of

pytestmark = pytest.mark.regression

PROGRAM = Path(simulation_digest.__file__)

SURROUNDINGS = [("0", "700"), ("1", "50"), ("4711", "0")]
"""PYTHONHASHSEED, and the number of new objects after which the collector runs; 0: never."""


@pytest.mark.system
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("delivery", "sharder", "minutes"),
    [
        ("labels", "service", "30"),
        ("labels", "in-manager", "10"),
        ("uid", "service", "10"),
        ("uid", "in-manager", "10"),
        ("namespace", "both", "10"),
        ("cluster", "in-manager", "10"),
    ],
)
def test_a_seed_gives_the_same_digest_under_every_hash_seed_and_collector(
    delivery: str, sharder: str, minutes: str
) -> None:
    size = ["--minutes", minutes, "--objects", "100", "--sharder", sharder, "--delivery", delivery]
    programs = [
        subprocess.Popen(
            [sys.executable, PROGRAM, *size, "--collect", threshold],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            stdout=subprocess.PIPE,
            text=True,
        )
        for hash_seed, threshold in SURROUNDINGS
    ]
    digests = [program.communicate()[0] for program in programs]
    assert [program.returncode for program in programs] == [0, 0, 0]
    assert len(set(digests)) == 1, f"compare the events: python {PROGRAM} --events FILE"


@pytest.fixture(scope="module")
def known() -> Digest:
    """The digest of seed 2."""
    return of(2, 1, 20)


def test_a_seed_gives_the_same_digest_twice_in_one_process(known: Digest) -> None:
    assert of(2, 1, 20) == known
    assert known.events > 500


@pytest.mark.nightly
def test_another_seed_gives_another_digest(known: Digest) -> None:
    assert of(1, 1, 20).value != known.value


@pytest.mark.nightly
def test_the_digest_sees_one_draw_without_a_seed(known: Digest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SeededRng, "token", lambda _: f"{random.getrandbits(128):032x}")
    assert of(2, 1, 20).value != known.value
