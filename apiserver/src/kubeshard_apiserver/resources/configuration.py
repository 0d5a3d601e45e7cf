"""ConfigMaps, Secrets and ServiceAccounts. Source: k8s.io/kubernetes `pkg/apis/core/validation`,
`pkg/registry/core/serviceaccount`.

Some messages about malformed JSON credentials differ from the server's.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from types import NoneType

from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.resources.typed import Typed
from kubeshard_apiserver.schema.name_formats import config_key, wrong
from kubeshard_apiserver.status import (
    FieldError,
    forbidden_field,
    immutable,
    invalid_value,
    required,
    too_long,
)

_LARGEST = 1024 * 1024
_FROZEN = "field is immutable when `immutable` is set"
_ACCOUNT = "kubernetes.io/service-account.name"
_DOCUMENTS = {
    "kubernetes.io/dockercfg": ".dockercfg",
    "kubernetes.io/dockerconfigjson": ".dockerconfigjson",
}
"""The key that contains a JSON document, by type of Secret."""


class ConfigMaps(Typed):
    def validate(self, obj: Object) -> list[FieldError]:
        texts, blobs = obj.get("data") or {}, obj.get("binaryData") or {}
        errors = _keys("data", texts) + _keys("binaryData", blobs)
        errors += [
            invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
            for key in texts
            if key in blobs
        ]
        if sum(len(text.encode()) for text in texts.values()) + _size(blobs) > _LARGEST:
            errors.append(too_long("[]", _LARGEST))
        return errors

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
        data, kind = obj.get("data") or {}, obj["type"]
        errors = _keys("data", data)
        if _size(data) > _LARGEST:
            errors.append(too_long("data", _LARGEST))
        if kind == "kubernetes.io/service-account-token":
            if not (obj["metadata"].get("annotations") or {}).get(_ACCOUNT):
                errors.append(required(f"metadata.annotations[{_ACCOUNT}]"))
        elif kind == "kubernetes.io/basic-auth":
            fields = ("username", "password")
            errors += [] if any(field in data for field in fields) else _missing(*fields)
        elif kind == "kubernetes.io/ssh-auth":
            errors += [] if data.get("ssh-privatekey") else _missing("ssh-privatekey")
        elif kind == "kubernetes.io/tls":
            errors += _missing(*(field for field in ("tls.crt", "tls.key") if field not in data))
        elif key := _DOCUMENTS.get(kind):
            errors += _document_errors(key, data[key]) if key in data else _missing(key)
        return errors

    def validate_update(self, new: Object, old: Object, subresource: str) -> list[FieldError]:
        changed = [immutable("type", new["type"])] if new["type"] != old["type"] else []
        return changed + _frozen(new, old, ("data",)) + self.validate(new)


def _keys(field: str, data: Mapping[str, str]) -> list[FieldError]:
    return [error for key in data for error in wrong(f"{field}[{key}]", key, config_key)]


def _size(blobs: Mapping[str, str]) -> int:
    """Return the total size of the decoded values."""
    return sum(len(text) * 3 // 4 - text[-2:].count("=") for text in blobs.values())


def _missing(*keys: str) -> list[FieldError]:
    return [required(f"data[{key}]") for key in keys]


def _document_errors(key: str, encoded: str) -> list[FieldError]:
    problem = ""
    text = base64.b64decode(encoded).decode(errors="replace")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        problem = "unexpected end of JSON input"
        if error.pos < len(text.rstrip()):
            problem = f"invalid character '{text[error.pos]}' looking for beginning of value"
    else:
        if not isinstance(found, dict | NoneType):
            kind = _GO_WORDS.get(type(found), "number")
            problem = f"json: cannot unmarshal {kind} into Go value of type map[string]interface {{}}"
    return [invalid_value(f"data[{key}]", "<secret contents redacted>", problem)] if problem else []


_GO_WORDS = {list: "array", str: "string", bool: "bool"}


def _frozen(new: Object, old: Object, fields: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = [] if new.get("immutable") else [forbidden_field("immutable", _FROZEN)]
    return errors + [forbidden_field(field, _FROZEN) for field in fields if new.get(field) != old.get(field)]


class ServiceAccounts(Typed):
    """ServiceAccounts. References to secrets keep only the name."""

    def prepare_create(self, obj: Object) -> None:
        super().prepare_create(obj)
        _keep_names(obj)

    def prepare_update(self, new: Object, old: Object, subresource: str) -> None:
        super().prepare_update(new, old, subresource)
        _keep_names(new)


def _keep_names(account: Object) -> None:
    if secrets := account.get("secrets"):
        account["secrets"] = [{"name": secret["name"]} if secret.get("name") else {} for secret in secrets]
