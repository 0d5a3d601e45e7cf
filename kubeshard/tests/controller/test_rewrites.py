"""What `ensure` learns from responses, and what it must not learn."""

from __future__ import annotations

import pytest

from kubeshard.controller import merging
from kubeshard.controller.merging import Rewrites, lacking, merged
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.builtin import Secret

KIND, UID = ConfigMap.KIND, "uid"


def test_what_the_server_made_of_a_value_is_not_sent_again() -> None:
    memory = Rewrites()
    memory.learn(KIND, UID, None, {"a": {"b": "sent", "c": 1}}, {"a": {"b": "stored"}})
    patch = {"a": {"b": "sent", "c": 1}}
    assert memory.without_known(UID, patch, {"a": {"b": "stored"}}) == {}
    assert memory.without_known(UID, {**patch, "d": 1}, {"a": {"b": "stored"}}) == {"d": 1}


def test_a_map_of_which_the_server_stores_nothing_is_not_sent_again() -> None:
    memory = Rewrites()
    memory.learn(KIND, UID, None, {"a": {"b": "sent"}}, {})
    assert memory.without_known(UID, {"a": {"b": "sent"}}, {}) == {}
    assert memory.without_known(UID, {"a": {"b": "sent", "c": 1}}, {}) == {"a": {"c": 1}}
    assert memory.without_known(UID, {"a": {}}, {}) == {"a": {}}


def test_another_desired_value_another_state_another_place_and_another_object_are_sent() -> None:
    memory = Rewrites()
    memory.learn(KIND, UID, None, {"a": "sent"}, {"a": "stored"})
    for patch, live in [
        ({"a": "other"}, {"a": "stored"}),
        ({"a": "sent"}, {"a": "changed since"}),
        ({"a": "sent"}, {}),
        ({"b": "sent"}, {"b": "stored"}),
        ({"a": None}, {"a": "stored"}),
    ]:
        assert memory.without_known(UID, patch, live) == patch
    assert memory.without_known("another", {"a": "sent"}, {"a": "stored"}) == {"a": "sent"}


def test_what_others_changed_meanwhile_is_not_learned() -> None:
    memory = Rewrites()
    memory.learn(
        KIND,
        UID,
        {"spec": {"mine": 1}},
        {"spec": {"mine": 1, "theirs": 3}},
        {"spec": {"mine": 2, "theirs": 5}},
    )
    assert memory.without_known(
        UID, {"spec": {"mine": 1, "theirs": 3}}, {"spec": {"mine": 2, "theirs": 5}}
    ) == {"spec": {"theirs": 3}}


def test_a_field_that_the_server_puts_back_is_not_removed_for_ever() -> None:
    memory = Rewrites()
    memory.learn(KIND, UID, {"a": None}, {"a": None}, {"a": "default"})
    assert memory.without_known(UID, {"a": None}, {"a": "default"}) == {}


def test_lists_are_learned_as_a_whole() -> None:
    memory = Rewrites()
    sent, stored = [{"name": "x", "size": ""}], [{"name": "x", "size": "large"}]
    memory.learn(KIND, UID, {"items": sent}, {"items": sent}, {"items": stored})
    assert memory.without_known(UID, {"items": sent}, {"items": stored}) == {}
    assert memory.without_known(UID, {"items": [*sent, {"name": "y"}]}, {"items": stored}) != {}


def test_the_author_is_told_once_which_field_and_no_values(caplog: pytest.LogCaptureFixture) -> None:
    memory = Rewrites()
    for number in range(3):
        memory.learn(KIND, UID, None, {"data": {"a/b": f"secret{number}"}}, {"data": {"a/b": "S"}})
    (record,) = caplog.records
    assert vars(record)["fields"] == {"kind": KIND, "field": "/data/a~1b"}
    assert "secret" not in str(vars(record))


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "REMEMBERED", 2)
    memory = Rewrites()
    for number in range(3):
        memory.learn(KIND, f"uid-{number}", None, {"a": "sent"}, {"a": "stored"})
    left = [
        memory.without_known(f"uid-{number}", {"a": "sent"}, {"a": "stored"}) == {} for number in range(3)
    ]
    assert left == [True, False, True]


def test_the_author_is_not_told_of_what_the_server_adds(caplog: pytest.LogCaptureFixture) -> None:
    memory = Rewrites()
    memory.learn(
        KIND,
        UID,
        None,
        {"a": ["b"], "c": None, "d": [{"e": 1}]},
        {"a": ["b", "x"], "c": 1, "d": [{"e": 1, "f": 2}]},
    )
    assert not caplog.records


def test_after_a_restore_nothing_is_known_any_more() -> None:
    """It also undoes how the kind was defined, and gives back fields of the status that were given up."""
    restores = 0
    memory = Rewrites(lambda: restores)
    memory.learn(KIND, UID, None, {"a": "sent"}, {"a": "stored"})
    memory.statements.note("uid", {"url": "u"}, there_is_more=True)
    assert memory.without_known(UID, {"a": "sent"}, {"a": "stored"}) == {}
    assert ("uid", {"url": "u"}) in memory.statements
    restores = 1
    assert ("uid", {"url": "u"}) not in memory.statements
    assert memory.without_known(UID, {"a": "sent"}, {"a": "stored"}) == {"a": "sent"}
    memory.learn(KIND, UID, None, {"a": "sent"}, {"a": "stored"})
    assert memory.without_known(UID, {"a": "sent"}, {"a": "stored"}) == {}


def known(memory: Rewrites, uid: str) -> bool:
    """Whether the object is known; else it is learned, as a request would teach it."""
    if memory.without_known(uid, {"a": "sent"}, {"a": "stored"}) == {}:
        return True
    memory.learn(KIND, uid, None, {"a": "sent"}, {"a": "stored"})
    return False


@pytest.mark.parametrize(("objects", "share"), [(90, 1.0), (101, 0.9), (200, 0.3)])
def test_of_more_objects_than_fit_a_share_stays_known(
    objects: int, share: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "REMEMBERED", 100)
    memory = Rewrites()
    rounds = [[known(memory, f"uid-{number}") for number in range(objects)] for _ in range(20)]
    assert sum(map(sum, rounds[1:])) >= share * objects * len(rounds[1:])


def test_objects_that_are_gone_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merging, "REMEMBERED", 100)
    memory = Rewrites()
    for number in range(100):
        known(memory, f"former-{number}")
    rounds = [[known(memory, f"uid-{number}") for number in range(80)] for _ in range(30)]
    assert sum(rounds[-1]) > 75


def test_plain_values_of_a_secret_are_compared_with_what_the_server_makes_of_them() -> None:
    metadata = ObjectMeta(name="s", namespace="ns", uid=UID)
    live = Secret(metadata=metadata, data={"a": "MQ==", "another's": "eA=="})
    for value, lacks in (("1", {}), ("2", {"data": {"a": "Mg=="}})):
        desired = Secret(metadata=metadata, string_data={"a": value})
        assert lacking(live, merged(live, desired), Rewrites()) == lacks
