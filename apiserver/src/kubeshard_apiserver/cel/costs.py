"""What an expression costs at most, as the real server estimates it from the schema of its variables.

The estimate decides which definitions are refused, so it follows the original to the unit: the sizes that a schema
allows, how often a step of a loop runs, and what each function costs. Where nothing bounds a value, it is as large as
a request may be. The library knows less about types, which must not make anything dearer: what `sum`, `min` and `max`
return is as their items, all that is a map of anything is one of Kubernetes' own types, and where numbers of several
types are compared, what may be anything is a number.

Source: cel-go `checker/cost.go`; k8s.io/apiserver `pkg/cel/library/cost.go`, `pkg/cel/common/schemas.go`;
k8s.io/apiextensions-apiserver `pkg/apiserver/schema/cel`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from kubeshard_apiserver.cel.checked import ANY, Checked, Node, type_name
from kubeshard_apiserver.cel.library import OPTIONAL_MARK
from kubeshard_apiserver.cel.schema_types import names_in_expressions

Schema = Mapping[str, Any]

MOST = (1 << 64) - 1
"""A cost, or a size, that nothing bounds."""
_REQUEST = 3 * 1024 * 1024
_LONGEST_NAME = 253
_TRAVERSED = 0.1
_REGEX = 0.25
_LONGEST_FORMAT = 128
_LIST, _MAP, _MESSAGE = 10, 30, 40


class Bound(NamedTuple):
    """What a schema says about the sizes of values. `kind` is `list`, `map`, `message`, `dyn` or the name of a simple
    type; `most` is the number of items, entries or bytes at most; `least` are the bytes of the shortest JSON.
    """

    kind: str
    most: int
    least: int
    item: Bound | None = None
    fields: Mapping[str, Bound] = {}

    @property
    def cardinality(self) -> int:
        """How many such values a request can have."""
        return _REQUEST // (self.least + 1)


_TEXT = Bound("string", _REQUEST - 2, 2)
_SIMPLE = {"boolean": Bound("bool", 0, 4), "number": Bound("double", 0, 1), "integer": Bound("int", 0, 1)}
_FORMATTED = {
    "duration": Bound("duration", 32, 3),
    "date": Bound("timestamp", 12, 12),
    "date-time": Bound("timestamp", 32, 21),
}


def bound_of(schema: Schema, *, is_root: bool = False) -> Bound | None:
    """Returns None for a part that is not visible to expressions."""
    if schema.get("x-kubernetes-int-or-string"):
        return Bound("dyn", _length(schema, 4), 1)
    match schema.get("type"):
        case "array":
            item = _inner(schema.get("items"))
            most = item and _given(schema, "maxItems", (_REQUEST - 2) // (item.least + 1))
            return item and Bound("list", most or 0, 2, item)
        case "object":
            if isinstance(schema.get("additionalProperties"), Mapping):
                item = _inner(schema["additionalProperties"])
                most = item and _given(schema, "maxProperties", (_REQUEST - 2) // (item.least + 6))
                return item and Bound("map", most or 0, 2, item)
            return _message(schema, is_root or bool(schema.get("x-kubernetes-embedded-resource")))
        case "string":
            format_ = schema.get("format") or ""
            if format_ == "byte":
                return Bound("bytes", _length(schema, 1), 2)
            return _FORMATTED.get(format_) or Bound("string", _length(schema, 4), 2)
        case str(simple):
            return _SIMPLE.get(simple)
    return None


def _inner(schema: Any) -> Bound | None:
    return bound_of(schema) if isinstance(schema, Mapping) else None


def _given(schema: Schema, word: str, otherwise: int) -> int:
    given = schema.get(word)
    return otherwise if given is None else max(0, given)


def _length(schema: Schema, bytes_each: int) -> int:
    if schema.get("maxLength") is not None:
        return int(max(0, schema["maxLength"])) * bytes_each
    if bytes_each > 1 and schema.get("enum") and schema.get("type") == "string":
        return max((len(choice.encode()) for choice in schema["enum"] if isinstance(choice, str)), default=0)
    return _TEXT.most


def _message(schema: Schema, is_resource: bool) -> Bound:
    properties = schema.get("properties") or {}
    needed, least, fields = set(schema.get("required") or ()), 2, {}
    bounds = {name: _inner(inner) for name, inner in properties.items()}
    if is_resource:
        bounds |= _of_resources(properties, bounds)
    for name, bound in bounds.items():
        if bound is not None:
            fields.update(dict.fromkeys(names_in_expressions(name), bound))
            if name in needed and (properties.get(name) or {}).get("default") is None:
                least += len(name.encode()) + bound.least + 4
    return Bound("message", 0, least, None, fields)


def _of_resources(properties: Schema, bounds: Mapping[str, Bound | None]) -> dict[str, Bound | None]:
    """The fields that rules see of every complete object, unless the schema has all of them."""
    meta = (properties.get("metadata") or {}).get("properties") or {}
    texts = (properties.get("kind"), properties.get("apiVersion"), meta.get("name"), meta.get("generateName"))
    kinds = {(text or {}).get("type") for text in texts}
    if kinds == {"string"} and (properties["metadata"].get("type") == "object"):
        return {}
    names = {
        name: Bound("string", 4 * min(_given(meta.get(name) or {}, "maxLength", most), most), 2)
        for name, most in (("name", _LONGEST_NAME), ("generateName", _LONGEST_NAME - 1))
    }
    return {"kind": _TEXT, "apiVersion": _TEXT, "metadata": Bound("message", 0, 2, None, names)}


class _Size(NamedTuple):
    least: int
    most: int

    def __or__(self, other: Any) -> Any:
        return _Size(min(self.least, other.least), max(self.most, other.most))

    def plus(self, other: _Size) -> _Size:
        return _Size(min(self.least + other.least, MOST), min(self.most + other.most, MOST))

    def times(self, other: _Size) -> _Size:
        return _Size(min(self.least * other.least, MOST), min(self.most * other.most, MOST))


_UNKNOWN, _ONE = _Size(0, MOST), _Size(1, 1)
_Path = tuple[str, ...]


def _scaled(size: int, factor: float) -> int:
    return min(math.ceil(float(size) * factor), MOST)


class _Local(NamedTuple):
    path: _Path
    size: _Size | None
    entry: _Entry | None


class _Entry(NamedTuple):
    """The sizes of the keys and values in a list or map that an expression makes."""

    kind: str
    key: _Size
    value: _Size

    @staticmethod
    def union(one: _Entry | None, other: _Entry | None) -> _Entry | None:
        return one and other and _Entry(one.kind, one.key | other.key, one.value | other.value)


class _Call(NamedTuple):
    cost: int
    size: _Size | None = None


def cost_of(checked: Checked, root: Bound, node: Node, *, is_loose: bool = False) -> int:
    """The cost of the node, a part of the checked expression, whose variables have this bound. `is_loose` says that the
    types of numbers are left open: they are `dyn`.
    """
    return min(_Costs(checked, root, is_loose).cost(node), MOST)


class _Costs:
    def __init__(self, checked: Checked, root: Bound, is_loose: bool) -> None:
        self._checked = checked
        self._is_loose = is_loose
        self._root = root
        self._paths: dict[int, _Path] = {}
        self._sizes: dict[int, _Size] = {}
        self._entries: dict[int, _Entry] = {}
        self._locals: dict[str, list[_Local]] = {}

    def cost(self, node: Node) -> int:
        match node.WhichOneof("kind"):
            case "ident":
                local = self._local(node)
                self._paths[node.id] = local.path if local else (node.ident.name,)
                return 1
            case "select":
                return self._select(node)
            case "call":
                return self._call(node)
            case "list":
                return self._list(node)
            case "map":
                return self._map(node)
            case "loop":
                return self._bind(node) if self._is_bind(node.loop) else self._loop(node)
        return 0

    def _select(self, node: Node) -> int:
        cost = self.cost(node.select.operand)
        if node.select.test:
            return cost
        self._paths[node.id] = (*self._path(node.select.operand), node.select.field)
        return cost + (self._kind(node.select.operand) in ("map", "message"))

    def _list(self, node: Node) -> int:
        items = node.list.elements
        cost = sum(map(self.cost, items)) + _LIST
        self._entries[node.id] = _Entry("list", _ONE, self._union(items))
        return min(cost, MOST)

    def _map(self, node: Node) -> int:
        entries = node.map.entries
        if node.map.name:
            return min(sum(self.cost(entry.value) for entry in entries) + _MESSAGE, MOST)
        cost = sum(self.cost(entry.key) + self.cost(entry.value) for entry in entries) + _MAP
        keys, values = [entry.key for entry in entries], [entry.value for entry in entries]
        self._entries[node.id] = _Entry("map", self._union(keys), self._union(values))
        return min(cost, MOST)

    def _union(self, nodes: Sequence[Node]) -> _Size:
        sizes = [self._size_or_unknown(node) for node in nodes] or [_Size(0, 0)]
        return _Size(min(size.least for size in sizes), max(size.most for size in sizes))

    def _loop(self, node: Node) -> int:
        loop = node.loop
        cost = self.cost(loop.range) + self.cost(loop.init)
        self._push(loop.accu, self._of_expression(loop.init))
        key, value = self._iterated(loop.range)
        is_list = value.path[-1] == "@items"
        names = {loop.var: key, loop.var2: value} if loop.var2 else {loop.var: value if is_list else key}
        for name, local in names.items():
            self._push(name, local)
        each = self.cost(loop.condition) + self.cost(loop.step)
        for name in names:
            self._locals[name].pop()
        cost += self.cost(loop.result)
        self._locals[loop.accu].pop()
        count = self._size_or_unknown(loop.range)
        match loop.init.WhichOneof("kind"):
            case "const":
                self._set_size(node, self._size(loop.init))
            case "list" | "map":
                self._sizes[node.id] = count
                self._set_entry(node, self._entry(loop.step))
        return min(cost + count.most * each, MOST)

    def _iterated(self, over: Node) -> tuple[_Local, _Local]:
        """The variables with the keys and values of what a loop runs over."""
        entry, path = self._entry(over), self._path(over)
        is_list = (entry.kind if entry else self._kind(over)) == "list"
        keys, values = ("@indices", "@items") if is_list else ("@keys", "@values")
        return (
            _Local((*path, keys), entry and entry.key, None),
            _Local((*path, values), entry and entry.value, None),
        )

    @staticmethod
    def _is_bind(loop: Any) -> bool:
        return (
            loop.range.WhichOneof("kind") == "list"
            and not loop.range.list.elements
            and loop.condition.const.WhichOneof("kind") == "flag"
            and not loop.condition.const.flag
            and loop.accu not in _ACCUMULATORS
        )

    def _bind(self, node: Node) -> int:
        loop = node.loop
        cost = self.cost(loop.range) + self.cost(loop.init)
        self._push(loop.accu, self._of_expression(loop.init))
        cost += self.cost(loop.result)
        self._locals[loop.accu].pop()
        self._copy_sizes(node, loop.result)
        return min(cost, MOST)

    def _of_expression(self, node: Node) -> _Local:
        return _Local(self._path(node), self._size(node), self._entry(node))

    def _push(self, name: str, local: _Local) -> None:
        self._locals.setdefault(name, []).append(local)

    def _call(self, node: Node) -> int:
        call = node.call
        if call.function == "dyn":
            cost = 1 + self.cost(call.args[0])
            self._copy_sizes(node, call.args[0])
            return cost
        if call.function == "_[?_]" and call.args[1].const.text == OPTIONAL_MARK:
            return self.cost(call.args[0])  # a function that is declared to return an optional value
        costs = [self.cost(argument) for argument in call.args]
        overloads = self._checked.overloads.get(node.id) or ()
        if not overloads:
            return 0
        target = call.target if call.HasField("target") else None
        cost, size = (0 if target is None else self.cost(target)), None
        most = 0
        for overload in overloads:
            estimate = self._estimate(node, overload, target, costs)
            most = max(most, estimate.cost)
            if estimate.size is not None:
                size = estimate.size if size is None else size | estimate.size
            if overload in _INDEXED:
                entry = self._entry(call.args[0])
                size = entry and entry.value
                self._paths[node.id] = (*self._path(call.args[0]), _INDEXED[overload])
            size = self._size(node) if size is None else size
        self._set_size(node, size)
        return min(cost + most, MOST)

    def _estimate(self, node: Node, overload: str, target: Node | None, costs: Sequence[int]) -> _Call:
        args = node.call.args
        match overload:
            case "logical_and" | "logical_or":
                return _Call(costs[0] + costs[1])
            case "conditional":
                size = self._size_or_unknown(args[1]) | self._size_or_unknown(args[2])
                self._set_entry(node, _Entry.union(self._entry(args[1]), self._entry(args[2])))
                return _Call(costs[0] + max(costs[1:]), size)
        estimate = self._own(node.call, target) or self._standard(node, overload, target)
        return _Call(min(estimate.cost + sum(costs), MOST), estimate.size)

    def _standard(self, node: Node, overload: str, target: Node | None) -> _Call:
        args, size = node.call.args, self._size_or_unknown
        if overload in _OF_TEXTS and any(map(self._is_scalar, args)):
            return _Call(1)  # this overload is possible only because the library knows less about types
        match overload:
            case "string_format" if target is not None:
                return _Call(_scaled(size(target).most, _TRAVERSED))
            case "string_to_bytes":
                given = size(args[0])
                return _Call(_scaled(given.most, _TRAVERSED), _Size(given.least, min(4 * given.most, MOST)))
            case "bytes_to_string":
                given = size(args[0])
                return _Call(_scaled(given.most, _TRAVERSED), _Size(given.least // 4, given.most))
            case "starts_with_string" | "ends_with_string":
                return _Call(_scaled(size(args[0]).most, _TRAVERSED))
            case "in_list":
                return _Call(size(args[1]).most)
            case "matches" | "matches_string":
                text, pattern = (target, args[0]) if target is not None else args
                return _Call(self._matched(text, size(pattern)))
            case "contains_string" if target is not None:
                text_cost = _scaled(size(target).most, _TRAVERSED)
                return _Call(min(text_cost * _scaled(size(args[0]).most, _TRAVERSED), MOST))
            case "add_string" | "add_bytes" | "add_list":
                made = size(args[0]).plus(size(args[1]))
                self._set_entry(node, _Entry.union(self._entry(args[0]), self._entry(args[1])))
                return _Call(1 if overload == "add_list" else _scaled(made.most, _TRAVERSED), made)
            case "quote" | "strings_quote":
                given = size(args[0])
                made = _Size(min(given.least + 2, MOST), min(2 * given.most + 2, MOST))
                return _Call(_scaled(given.most, _TRAVERSED), made)
            case "equals" if any(map(self._is_kubernetes, args)):
                return _Call(_scaled(size(args[1]).most, _TRAVERSED) if args[1].call.function == "url" else 1)
        if overload in _COMPARING:
            return _Call(_scaled(min(size(args[0]).most, size(args[1]).most), _TRAVERSED))
        if (factor := _SETS.get(node.call.function)) is not None:
            return _Call(_scaled(size(args[0]).times(size(args[1])).most, factor) + 1)
        return _Call(1)

    def _own(self, call: Any, target: Node | None) -> _Call | None:
        """The costs of functions that Kubernetes adds, or says itself."""
        args, name, size = call.args, call.function, self._size_or_unknown
        if name in _NOMINAL:
            return _Call(1)
        if name == "check":
            return _Call(350_000)
        if name in _PARSING and args:
            return _Call(_scaled(size(args[0]).most, _TRAVERSED))
        if name == "ip.isCanonical":
            return _Call(_scaled(size(args[0]).most, 2 * _TRAVERSED))
        if name == "url":
            return _Call(_scaled(size(args[0]).most, _TRAVERSED), size(args[0]))
        if name in _MAKING:
            texts = target is not None and self._item_kind(target) in ("string", "bytes")
            return self._made_list(name, args, size(target) if target is not None else _UNKNOWN, texts=texts)
        if name == _SORTING_BY:
            return self._made_list(
                "sort", (), size(args[0]), texts=self._item_kind(args[0]) in ("string", "bytes")
            )
        if target is None:
            return None
        given = size(target)
        match name:
            case "isSorted" | "sum" | "max" | "min" | "indexOf" | "lastIndexOf" | "includes":
                return self._searched(name, target, given)
            case "lowerAscii" | "upperAscii" | "substring" | "trim":
                return _Call(_scaled(given.most, _TRAVERSED), given)
            case "replace":
                made = _replaced(given, size(args[0]), size(args[1]))
                return _Call(_scaled(given.most, 2 * _TRAVERSED), made)
            case "split":
                limit = args[1].const.whole if len(args) > 1 and _is_whole(args[1]) else given.most
                return _Call(_scaled(given.most, 2 * _TRAVERSED), _Size(0, limit & MOST))
            case "join":
                made = _Size(0, 0)
                if self._item_kind(target):
                    made = given.times(self._item_size(target))
                if args:
                    between = _Size(max(given.least - 1, 0), max(given.most - 1, 0))
                    made = made.plus(size(args[0]).times(between))
                return _Call(_scaled(made.most, _TRAVERSED), made)
            case "find" | "findAll":
                return _Call(self._matched(target, size(args[0])), _Size(0, given.most))
            case "containsIP" | "containsCIDR":
                parses = self._kind(args[0]) == "string"
                length = _scaled(size(args[0]).most, _TRAVERSED) if parses else 0
                return _Call(4 + (3 if name == "containsCIDR" else 0) + length)
            case "validate":
                return _Call(_scaled(_scaled(size(args[0]).most, _TRAVERSED), _LONGEST_FORMAT * _REGEX))
        return None

    def _made_list(self, name: str, args: Sequence[Node], given: _Size, *, texts: bool) -> _Call:
        """Functions that make a list of another one; `texts` says whether what is compared for that is texts."""
        whole = [argument.const.whole if _is_whole(argument) else None for argument in args]
        factor, made = 1.0, given
        match name:
            case "slice":
                start, end = whole[0] or 0, given.most if whole[1] is None else whole[1]
                made = _Size((end - start) & MOST, (end - start) & MOST)
            case "lists.range":
                made = _Size(0, MOST) if whole[0] is None else _Size(whole[0], whole[0])
            case "flatten":
                factor = float(1 if not whole else MOST if whole[0] is None else whole[0])
            case "distinct" | "sort":
                factor, made = 2.0, given.times(given)
                if name == "sort" and texts:
                    factor += _TRAVERSED
        return _Call(min(_scaled(made.most, factor) + 1 + _LIST, MOST), made)

    def _matched(self, text: Node, pattern: _Size) -> int:
        length = min(self._size_or_unknown(text).most + 1, MOST)
        return min(_scaled(length, _TRAVERSED) * _scaled(pattern.most, _REGEX), MOST)

    def _searched(self, name: str, target: Node, given: _Size) -> _Call:
        kind = self._item_kind(target)
        if not kind and name != "includes":
            return _Call(_scaled(given.most, _TRAVERSED))
        each = 1
        if kind in ("string", "bytes"):
            each += _scaled(self._item_size(target).most, _TRAVERSED)
        return _Call(min(given.most * each, MOST))

    def _item_kind(self, node: Node) -> str:
        """The type of the items of a list; empty for what has none."""
        bound = self._bound(self._path(node))
        if bound is not None:
            return bound.item.kind if bound.item else ""
        type_ = self._checked.types.get(node.id)
        return type_name(type_.list.item) if type_ is not None and type_.WhichOneof("kind") == "list" else ""

    def _item_size(self, node: Node) -> _Size:
        path = self._path(node)
        bound = self._bound((*path, "@items")) if path else None
        return _UNKNOWN if bound is None else _Size(0, bound.most)

    def _is_scalar(self, node: Node) -> bool:
        """Whether all values of the type are of one size."""
        bound = self._bound(self._path(node))
        name, kind = self._type_name(node), bound.kind if bound else ""
        if name in _SCALARS or kind in _SCALARS or (self._is_loose and name == ANY != kind):
            return True
        if node.WhichOneof("kind") != "call":
            return False
        match node.call.function:
            case "sum" | "min" | "max":  # the types of what they return are those of the items
                entry, kind = self._entry(node.call.target), self._item_kind(node.call.target)
                return kind in _SCALARS or (kind == ANY and entry is not None and entry.value.most <= 1)
            case "_+_" | "_-_" | "_*_" | "_/_" | "_%_" | "-_":
                return any(map(self._is_scalar, node.call.args))
        return False

    def _is_kubernetes(self, node: Node) -> bool:
        """Whether the value is of one of Kubernetes' own types, which are maps here."""
        is_map = node.WhichOneof("kind") == "map" or node.call.function == "getQuery"
        return self._type_name(node) == _KUBERNETES and not is_map

    def _type_name(self, node: Node) -> str:
        type_ = self._checked.types.get(node.id)
        return ANY if type_ is None else type_name(type_)

    def _local(self, node: Node) -> _Local | None:
        found = self._locals.get(node.ident.name) if node.WhichOneof("kind") == "ident" else None
        return found[-1] if found else None

    def _path(self, node: Node) -> _Path:
        local = self._local(node)
        return local.path if local else self._paths.get(node.id, ())

    def _bound(self, path: _Path) -> Bound | None:
        """What the schema says about the value at the path, whose first step is a variable."""
        bound: Bound | None = self._root if path else None
        for step in path[1:]:
            if bound is None:
                break
            if step == "@keys":
                bound = Bound("string", 0, 2) if bound.kind == "map" else None
            elif step in ("@items", "@values"):
                bound = bound.item
            else:
                bound = bound.fields.get(step)
        return bound

    def _kind(self, node: Node) -> str:
        bound = self._bound(self._path(node))
        if bound is not None:
            return bound.kind
        type_ = self._checked.types.get(node.id)
        kind = None if type_ is None else type_.WhichOneof("kind")
        return kind if kind in ("list", "map", "message") else self._type_name(node)

    def _size_or_unknown(self, node: Node) -> _Size:
        size = self._size(node)
        return _UNKNOWN if size is None else size

    def _size(self, node: Node) -> _Size | None:
        if (known := self._sizes.get(node.id)) is not None:
            return known
        match node.WhichOneof("kind"):
            case "const":
                kind = node.const.WhichOneof("kind")
                length = len(getattr(node.const, kind)) if kind in ("text", "raw") else 1
                return _Size(length, length)
            case "list":
                return _Size(len(node.list.elements), len(node.list.elements))
            case "map" if not node.map.name:
                return _Size(len(node.map.entries), len(node.map.entries))
        if (bound := self._bound(self._path(node))) is not None:
            size = self._sizes[node.id] = _Size(0, bound.most)
            return size
        if self._is_scalar(node):
            return _ONE
        local = self._local(node)
        return local.size if local else None

    def _set_size(self, node: Node, size: _Size | None) -> None:
        if size is not None:
            self._sizes[node.id] = size

    def _entry(self, node: Node) -> _Entry | None:
        if (known := self._entries.get(node.id)) is not None:
            return known
        local = self._local(node)
        return local.entry if local else None

    def _set_entry(self, node: Node, entry: _Entry | None) -> None:
        if entry is not None:
            self._entries[node.id] = entry

    def _copy_sizes(self, node: Node, of: Node) -> None:
        self._set_size(node, self._size(of))
        self._set_entry(node, self._entry(of))


def _replaced(given: _Size, old: _Size, new: _Size) -> _Size:
    """The size of a text in which one text has been replaced by another."""
    if old.least == 0:
        most = min(min(given.most + 1, MOST) * new.most + given.most, MOST)
    elif new.most <= old.least:
        most = given.most
    else:
        most = min(math.ceil(float(given.most) / float(old.least)) * new.most, MOST)
    if old.most == 0:
        least = (given.least + 1) * new.least + given.least
    elif old.most <= new.least:
        least = given.least
    else:
        least = math.ceil(float(given.least) / float(old.most)) * new.least
    return _Size(min(least, MOST), most)


def _is_whole(node: Node) -> bool:
    return bool(node.WhichOneof("kind") == "const" and node.const.WhichOneof("kind") == "whole")


_ACCUMULATORS = ("__result__", "@result")
_SCALARS = frozenset(("bool", "double", "duration", "int", "timestamp", "uint"))
_SCALARS |= frozenset(f"optional_type({scalar})" for scalar in _SCALARS)
_INDEXED = {"index_list": "@items", "index_map": "@values"}
_ORDERING = frozenset(
    f"{how}_{what}"
    for how in ("less", "greater", "less_equals", "greater_equals")
    for what in ("string", "bytes")
)
_OF_TEXTS = _ORDERING | {"add_string", "add_bytes", "add_list", "bytes_to_string", "string_to_bytes"}
_COMPARING = _ORDERING | {"equals", "not_equals"}
_KUBERNETES = "map(dyn, dyn)"
_SETS = {"sets.contains": 1, "sets.intersects": 1, "sets.equivalent": 2}
_SORTING_BY = "@sortByAssociatedKeys"
_MAKING = frozenset(("slice", "lists.range", "flatten", "distinct", "sort", "reverse"))
_NOMINAL = frozenset(
    (
        *("serviceAccount", "path", "group", "resource", "subresource", "namespace", "name"),
        *("allowed", "reason", "error", "errored"),
        *("masked", "prefixLength", "family", "isUnspecified", "isLoopback", "isLinkLocalMulticast"),
        *("isLinkLocalUnicast", "isGlobalUnicast", "format.named"),
        *("sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo"),
        *("add", "sub", "major", "minor", "patch"),
        *("getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"),
    )
)
_PARSING = frozenset(("cidr", "isIP", "isCIDR", "ip", "quantity", "isQuantity", "semver", "isSemver"))
