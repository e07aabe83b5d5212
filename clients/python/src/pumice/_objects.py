"""JSON of Kubernetes objects: lists of them, and pods with the owners from which the server derives their selectors."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

# Kinds that become no records: pods of the same message get `owner_selector` from them.
_OWNERS = ("Service", "ReplicationController", "ReplicaSet", "StatefulSet")
# In the place of a namespace without owners: one of another namespace, so that the server knows of no missing ones.
_OTHER = ""


def list_items(value: object) -> Iterator[object] | None:
    """Returns the objects of a list, with the kind that a typed list leaves out; None: it is no list."""
    if not isinstance(value, dict):
        return None
    kind, items = value.get("kind"), value.get("items")
    if not isinstance(kind, str) or not kind.endswith("List") or not isinstance(items, list):
        return None
    own = {"apiVersion": value.get("apiVersion"), "kind": kind.removesuffix("List")}
    return ({**own, **item} if isinstance(item, dict) else item for item in items)


def object_text(value: object) -> bytes:
    """Returns the JSON of a value, as short as it can be."""
    return json.dumps(value, separators=(",", ":")).encode()


class SentObject(NamedTuple):
    """Text of an object, and the owners that have to be in the same message, which are those of one namespace."""

    text: bytes
    namespace: str
    owners: list[bytes]


def with_owners(texts: Iterable[bytes]) -> Iterator[SentObject]:
    """Yields the objects that own no pods, one by one, with the owners of pods beside them."""
    objects: list[tuple[str, bool, bytes]] = []
    owners: dict[str, list[bytes]] = {}
    for value, text in _values(texts):
        kind, namespace = (value.get("kind"), _namespace(value)) if isinstance(value, dict) else (None, None)
        if kind in _OWNERS and namespace is not None:
            owners.setdefault(namespace, []).append(_selector(value))
        else:
            objects.append((namespace or "", kind == "Pod", text))
    owners[_OTHER] = next(iter(owners.values()), [])[:1]
    # Pods of a namespace follow each other, so that few messages repeat its owners.
    objects.sort(key=lambda one: one[0])
    for namespace, is_pod, text in objects:
        place = namespace if namespace in owners else _OTHER
        yield SentObject(text, place, owners[place] if is_pod else [])


def _values(texts: Iterable[bytes]) -> Iterator[tuple[Any, bytes]]:
    """Yields objects as values and as texts. A text that is no JSON stays as it is: the server says so."""
    for text in texts:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            yield None, text
            continue
        items = list_items(value)
        if items is None:
            yield value, text
        else:
            yield from ((item, object_text(item)) for item in items)


def _namespace(value: dict[str, Any]) -> str | None:
    """Returns the namespace of an object, "default" if it has none; None: it cannot be read."""
    metadata = value.get("metadata")
    namespace = (metadata.get("namespace") or "default") if isinstance(metadata, dict) else None
    return namespace if isinstance(namespace, str) else None


def _selector(owner: dict[str, Any]) -> bytes:
    """Returns the part of an owner that pods get: its selector."""
    spec = owner.get("spec")
    own = {key: owner["metadata"].get(key) for key in ("name", "namespace")}
    selector = {key: spec[key] for key in ("selector",) if key in spec} if isinstance(spec, dict) else spec
    return object_text(
        {"apiVersion": owner.get("apiVersion"), "kind": owner["kind"], "metadata": own, "spec": selector}
    )
