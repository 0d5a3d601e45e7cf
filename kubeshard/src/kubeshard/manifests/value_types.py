"""What values are made of, and the forms that texts among them have."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

from kubeshard.core.objects import Struct

QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|Ki|M|Mi|G|Gi)?$"
DNS_LABEL = r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$"
IMAGE = r"^([^\s/@]+/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@[a-z0-9]+:[0-9a-f]{32,})?$"
"""An image reference as container runtimes parse it: registry, path, tag and digest."""
CIDR = r"^[0-9a-fA-F.:]+/[0-9]{1,3}$"
Quantity = Annotated[str, Meta(pattern=QUANTITY)]
DnsLabel = Annotated[str, Meta(pattern=DNS_LABEL)]

DNS_NAME = r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$"
DnsName = Annotated[str, Meta(pattern=DNS_NAME)]


class Values(Struct, forbid_unknown_fields=True):
    """The base class of all values. Unknown names are mistakes."""


class Off(Values):
    enabled: bool = False


class On(Values):
    enabled: bool = True
