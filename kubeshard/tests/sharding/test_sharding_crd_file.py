"""The CRD file that users apply."""

from __future__ import annotations

from pathlib import Path

import yaml

from kubeshard.sharding.crd import controller_ring_crd

FILE = Path(__file__).parents[3] / "examples" / "controllerring_crd.yaml"


def test_the_crd_to_apply_is_the_one_in_code() -> None:
    assert yaml.safe_load(FILE.read_text()) == controller_ring_crd()
