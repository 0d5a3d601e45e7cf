"""The bill of materials of the image names what is in each layer, and what wheels bring along."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
from cyclonedx.schema import SchemaVersion

from image.sbom import bill_of_image

OPENSSL = "pkg:generic/openssl@4.0.3"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    packages = tmp_path / "usr/lib/python3/dist-packages"
    for name in ("Crypto_Graphy", "pycurl"):
        folder = packages / f"{name}-1.0.dist-info"
        folder.mkdir(parents=True)
        (folder / "METADATA").write_text(f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.0\n")
    sboms = packages / "Crypto_Graphy-1.0.dist-info" / "sboms"
    sboms.mkdir()
    component = {
        "name": "openssl",
        "version": "4.0.3",
        "purl": f"{OPENSSL}?download_url=file:///build/openssl",
    }
    (sboms / "sbom.json").write_text(json.dumps({"bomFormat": "CycloneDX", "components": [component]}))
    (packages / "pycurl.libs").mkdir()
    (packages / "pycurl.libs" / "libssl-8b66dd34.so.3").write_bytes(b"a library")
    return tmp_path


def bill(root: Path) -> dict[str, Any]:
    made = {
        bill_of_image(root, packages, version="0.1.0", epoch=1_700_000_000)
        for packages in ([("zlib1g", "1"), ("libc6", "2")], [("libc6", "2"), ("zlib1g", "1")])
    }
    (text,) = made  # the same bytes in any order
    assert "file:///build" not in text
    assert str(root) not in text
    found: dict[str, Any] = json.loads(text)
    return found


def test_it_names_debians_packages_distributions_and_what_wheels_bring(root: Path) -> None:
    components = {each["bom-ref"]: each for each in bill(root)["components"]}
    library = "usr/lib/python3/dist-packages/pycurl.libs/libssl-8b66dd34.so.3"
    assert components.keys() == {
        "pkg:deb/debian/libc6@2?distro=debian-12",
        "pkg:deb/debian/zlib1g@1?distro=debian-12",
        "pkg:pypi/crypto-graphy@1.0",
        "pkg:pypi/pycurl@1.0",
        OPENSSL,
        f"file:{library}",
    }
    (digest,) = components[f"file:{library}"]["hashes"]
    assert digest["content"] == hashlib.sha256(b"a library").hexdigest()


def test_it_is_a_bill_of_the_image(root: Path) -> None:
    found = bill(root)
    assert found["specVersion"] == SchemaVersion.V1_6.to_version()
    assert found["metadata"]["component"]["type"] == "container"
