"""The bill of materials that `make dist` generates."""

from __future__ import annotations

import json
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion

from distribution.sbom import bill_of

EPOCH = 1_700_000_000


def installed(site_packages: Path, name: str, *fields: str) -> Distribution:
    """Unpacks a distribution as an installer would."""
    folder = site_packages / f"{name}-1.0.dist-info"
    folder.mkdir(parents=True)
    (folder / "METADATA").write_text(
        "\n".join(("Metadata-Version: 2.4", f"Name: {name}", "Version: 1.0", *fields, ""))
    )
    (found,) = distributions(path=[str(site_packages)], name=name)
    return found


@pytest.fixture
def bill(tmp_path: Path) -> dict:
    extra = "Requires-Dist: absent; extra == 'more'"
    subject = installed(
        tmp_path, "subject", "License-Expression: Apache-2.0", "Requires-Dist: Mid_dle>=1", extra
    )
    middle = installed(tmp_path, "Mid.dle", "License: BSD-3-Clause", "Requires-Dist: leaf")
    leaf = installed(tmp_path, "leaf", "License-Expression: MIT OR Apache-2.0", "Summary: the last")
    pages = {
        bill_of(subject, others, wheel_digest="ab" * 32, epoch=EPOCH)
        for others in ((middle, leaf), (leaf, middle))
    }
    (page,) = pages  # the same bytes in any order
    assert str(tmp_path) not in page
    return dict(json.loads(page))


def test_a_bill_names_what_is_installed_by_version_and_licence(bill: dict) -> None:
    assert (bill["bomFormat"], bill["specVersion"]) == ("CycloneDX", SchemaVersion.V1_6.to_version())
    assert {it["purl"]: it["licenses"][0] for it in bill["components"]} == {
        "pkg:pypi/leaf@1.0": {"expression": "MIT OR Apache-2.0"},
        "pkg:pypi/mid-dle@1.0": {"license": {"id": "BSD-3-Clause"}},
    }


def test_a_bill_says_whose_it_is_and_when_it_was(bill: dict) -> None:
    subject = bill["metadata"]["component"]
    assert subject["purl"] == "pkg:pypi/subject@1.0"
    assert subject["hashes"] == [{"alg": "SHA-256", "content": "ab" * 32}]
    assert bill["metadata"]["timestamp"] == "2023-11-14T22:13:20+00:00"
    assert bill["serialNumber"].startswith("urn:uuid:")


def test_a_bill_says_what_needs_what_and_nothing_that_is_not_there(bill: dict) -> None:
    assert {it["ref"]: it.get("dependsOn", []) for it in bill["dependencies"]} == {
        "pkg:pypi/subject@1.0": ["pkg:pypi/mid-dle@1.0"],
        "pkg:pypi/mid-dle@1.0": ["pkg:pypi/leaf@1.0"],
        "pkg:pypi/leaf@1.0": [],
    }
