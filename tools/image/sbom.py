"""The bill of materials of the image, as CycloneDX JSON: all layers, down to the libraries inside wheels.

| what | found in |
|---|---|
| Debian's packages | the list that the image is made from |
| Python distributions | their `.dist-info` in the root file system |
| what is linked into a wheel, such as cryptography's OpenSSL | the bills that wheels bring along (PEP 770) |
| shared libraries that a wheel brings, such as pycurl's libcurl | `NAME.libs`; only names and hashes of the files |
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL
from packaging.utils import canonicalize_name

DEBIAN = "debian-12"


def bill_of_image(root: Path, packages: Iterable[tuple[str, str]], *, version: str, epoch: int) -> str:
    """`packages`: names and versions of Debian's in `root`. The same content gives the same bill."""
    parts = {str(each.bom_ref): each for each in (*_debian(packages), *_python(root))}
    content = hashlib.sha256("\n".join(sorted(parts)).encode()).hexdigest()
    bill = Bom(components=parts.values(), serial_number=uuid5(NAMESPACE_URL, content))
    bill.metadata.timestamp = datetime.fromtimestamp(epoch, UTC)
    image = Component(
        type=ComponentType.CONTAINER, name="kubeshard", version=version, bom_ref=f"image:{version}"
    )
    bill.metadata.component = image
    bill.register_dependency(image, parts.values())
    text: str = make_outputter(bill, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string(indent=2)
    return text + "\n"


def _debian(packages: Iterable[tuple[str, str]]) -> Iterator[Component]:
    for name, version in packages:
        yield _library(PackageURL("deb", "debian", name, version, {"distro": DEBIAN}))


def _python(root: Path) -> Iterator[Component]:
    for place in sorted({each.parent for each in root.rglob("*.dist-info")}):
        for found in distributions(path=[str(place)]):
            yield _library(PackageURL("pypi", name=canonicalize_name(found.name), version=found.version))
        for bill in sorted(place.glob("*.dist-info/sboms/*.json")):
            yield from _brought(json.loads(bill.read_text()))
        for library in sorted(place.glob("*.libs/*")):
            digest = hashlib.sha256(library.read_bytes()).hexdigest()
            inside = str(library.relative_to(root))
            hashes = [HashType(alg=HashAlgorithm.SHA_256, content=digest)]
            yield Component(type=ComponentType.FILE, name=inside, bom_ref=f"file:{inside}", hashes=hashes)


def _brought(bill: dict[str, object]) -> Iterator[Component]:
    """The components of a bill that a wheel brings, without addresses of the machine that built it."""
    components = bill.get("components")
    for each in components if isinstance(components, list) else ():
        if each.get("purl") and each.get("version"):
            given = PackageURL.from_string(each["purl"])
            yield _library(PackageURL(given.type, given.namespace, given.name, given.version))


def _library(purl: PackageURL) -> Component:
    return Component(
        type=ComponentType.LIBRARY, name=purl.name, version=purl.version, purl=purl, bom_ref=str(purl)
    )
