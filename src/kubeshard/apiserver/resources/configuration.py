"""ConfigMaps and Secrets."""

from __future__ import annotations

import base64
import re

from kubeshard.apiserver.objects import Object
from kubeshard.apiserver.resources.typed import Typed
from kubeshard.apiserver.status import FieldError, forbidden_field, immutable, invalid_value

_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_BAD_KEY = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or "
    "'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
_FROZEN = "field is immutable when `immutable` is set"


class ConfigMaps(Typed):
    def validate(self, obj: Object) -> list[FieldError]:
        return _keys(obj, "data") + _keys(obj, "binaryData")

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        return _frozen(new, old, ("data", "binaryData")) + self.validate(new)


class Secrets(Typed):
    selectable = ("metadata.name", "metadata.namespace", "type")

    def set_defaults(self, obj: Object) -> None:
        if plain := obj.pop("stringData", None):
            encoded = {key: base64.b64encode(text.encode()).decode() for key, text in plain.items()}
            obj["data"] = {**(obj.get("data") or {}), **encoded}
        obj.setdefault("type", "Opaque")

    def validate(self, obj: Object) -> list[FieldError]:
        return _keys(obj, "data")

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        changed = [immutable("type", new["type"])] if new["type"] != old["type"] else []
        return changed + _frozen(new, old, ("data",)) + self.validate(new)


def _keys(obj: Object, field: str) -> list[FieldError]:
    return [
        invalid_value(f"{field}[{key}]", key, _BAD_KEY)
        for key in obj.get(field) or {}
        if not _KEY.fullmatch(key) or key in (".", "..")
    ]


def _frozen(new: Object, old: Object, fields: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = [] if new.get("immutable") else [forbidden_field("immutable", _FROZEN)]
    return errors + [forbidden_field(field, _FROZEN) for field in fields if new.get(field) != old.get(field)]
