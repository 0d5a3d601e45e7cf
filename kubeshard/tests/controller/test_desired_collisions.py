"""List entries with the same name as a desired entry are distinguished from the desired entry itself."""

from __future__ import annotations

import json
from typing import Any

from kubeshard.controller.desired.execution import collisions


def entry(name: str, port: int, protocol: str = "TCP", **more: Any) -> dict[str, Any]:
    return {"name": name, "port": port, "protocol": protocol, **more}


def service(*ports: dict[str, Any]) -> dict[str, Any]:
    """Returns a Service as stored by the server, with each port set by a different manager."""
    fields = [
        {"f:spec": {"f:ports": {f"k:{json.dumps({k: port[k] for k in ('port', 'protocol')})}": {".": {}}}}}
        for port in ports
    ]
    managed = [{"manager": str(number), "fieldsV1": each} for number, each in enumerate(fields)]
    return {"metadata": {"managedFields": managed}, "spec": {"ports": list(ports)}}


def desired(*ports: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": "x"}, "spec": {"ports": ports}}


def test_an_entry_of_its_name_and_another_key_is_replaced_in_its_place() -> None:
    mine = {"name": "http", "port": 80}
    live = service(entry("theirs", 99), entry("http", 81, nodePort=30000))
    assert collisions(desired(mine), live) == [{"op": "replace", "path": "/spec/ports/1", "value": mine}]


def test_the_same_entry_stays_also_where_the_server_fills_in_a_part_of_the_key() -> None:
    live = service(entry("http", 80))
    assert collisions(desired({"name": "http", "port": 80}), live) == []


def test_an_entry_that_is_another_desired_one_stays_whatever_its_name() -> None:
    live = service(entry("http", 81))
    assert collisions(desired(entry("http", 80), entry("admin", 81)), live) == []


def test_an_entry_that_says_its_whole_key_comes_before_one_that_leaves_a_part_to_the_server() -> None:
    live = service(entry("dns", 53, "UDP"), entry("dns-tcp", 5353))
    mine = {"name": "dns-tcp", "port": 53}
    assert collisions(desired(mine, entry("dns", 53, "UDP")), live) == [
        {"op": "replace", "path": "/spec/ports/1", "value": mine}
    ]


def test_nothing_is_replaced_in_a_list_without_keys() -> None:
    live = {"metadata": {}, "spec": {"ports": [entry("http", 81)]}}
    assert collisions(desired(entry("http", 80)), live) == []


def test_lists_inside_entries_are_looked_through() -> None:
    ports = service(entry("http", 81))
    fields = {
        "f:containers": {'k:{"name":"main"}': ports["metadata"]["managedFields"][0]["fieldsV1"]["f:spec"]}
    }
    live = {
        "metadata": {"managedFields": [{"fieldsV1": {"f:spec": fields}}]},
        "spec": {"containers": [{"name": "side"}, {"name": "main", **ports["spec"]}]},
    }
    mine = {"spec": {"containers": [{"name": "main", "ports": [entry("http", 80)]}]}}
    (operation,) = collisions(mine, live)
    assert operation["path"] == "/spec/containers/1/ports/0"
