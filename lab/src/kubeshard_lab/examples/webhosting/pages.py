"""The index page and the nginx configuration of a website's server.

Values are escaped for their context: names for HTML text, theme values for CSS. A CSS value that could break out of its
declaration becomes the literal `ZgotmplZ`, as in Go's html/template.
"""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Callable, Mapping
from functools import cache, lru_cache
from importlib.resources import files
from string import Template

import msgspec

from kubeshard_lab.examples.webhosting.api import Theme, Website

INDEX_HTML = "index.html"
NGINX_CONF = "nginx.conf"
REPOSITORY = "https://github.com/timebertt/kubernetes-controller-sharding"

_UNSAFE_CSS = frozenset("\0\"'()/;@[\\]`{}<>")
_SCRIPTING_CSS = ("expression", "mozbinding")
_FAILSAFE = "ZgotmplZ"
_GO_JSON_ESCAPES = {c.encode(): f"\\u{ord(c):04x}".encode() for c in "<>&\u2028\u2029"}


def index_html(server: str, website: Website, theme: Theme) -> str:
    return _template(INDEX_HTML)(
        name=html.escape(website.metadata.name),
        server=html.escape(server),
        color=css_value(theme.spec.color),
        font=css_value(theme.spec.font_family),
        repository=REPOSITORY,
    )


def nginx_conf(website: Website) -> str:
    return _template(NGINX_CONF)(namespace=website.metadata.namespace, name=website.metadata.name)


@lru_cache(maxsize=64)
def css_value(text: str) -> str:
    """`text` if it cannot break out of a CSS value, otherwise a harmless word."""
    name_characters = "".join(c for c in text.lower() if c.isascii() and (c.isalnum() or c == "_"))
    unsafe = (
        not _UNSAFE_CSS.isdisjoint(text)
        or "--" in text
        or any(word in name_characters for word in _SCRIPTING_CSS)
    )
    return _FAILSAFE if unsafe else text


def checksum(data: Mapping[str, str]) -> str:
    """As the Go operator hashes a ConfigMap's data, so that both make equal pod templates for equal data."""
    encoded = msgspec.json.encode(data, order="sorted")
    for character, escape in _GO_JSON_ESCAPES.items():
        encoded = encoded.replace(character, escape)
    return hashlib.sha256(encoded).hexdigest()


@cache
def _template(name: str) -> Callable[..., str]:
    """A `string.Template` whose fields are looked up only once."""
    text = (files("kubeshard_lab.examples.webhosting") / "templates" / name).read_text(encoding="utf-8")

    def piece(found: re.Match[str]) -> str:
        return "$" if found["escaped"] is not None else f"{{{found['named']}}}"

    return Template.pattern.sub(piece, text.replace("{", "{{").replace("}", "}}")).format
