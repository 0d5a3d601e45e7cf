"""The processes of a set-up, and what their configurations say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kubeshard.runtime.world import REAL_WORLD
from kubeshard_lab.experiment.setups import Programs, Setup


def sharder_document(folder: Path, user: str, program: Path | None = None) -> dict[str, object]:
    setup = Setup("external", 3, 15, sharder=program)
    programs = Programs(setup, folder / "kubeconfig", folder, 15.0, REAL_WORLD.clock, user)
    launch = programs.sharders()[0]
    return dict(json.loads(Path(launch.command[-1]).read_text()))


def test_sharders_are_told_which_user_they_are_so_no_webhook_is_called_for_their_moves(
    tmp_path: Path,
) -> None:
    assert sharder_document(tmp_path, "admin")["sharders"] == ["admin"]


@pytest.mark.parametrize(("user", "program"), [("", None), ("admin", Path("/bin/true"))])
def test_a_sharder_is_not_told_a_user_that_is_unknown_or_that_its_program_would_refuse(
    tmp_path: Path, user: str, program: Path | None
) -> None:
    assert "sharders" not in sharder_document(tmp_path, user, program)
