"""A Kubernetes pod as far as its amounts go, read from the JSON of the Kubernetes API."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeVar

from pumice.quantity import Format, Quantity, QuantityError

__all__ = ["Container", "ContainerStatus", "Pod", "PodError", "PodStatus", "RawNumber", "Resources", "read_json"]

Quantities = dict[str, Quantity]
_T = TypeVar("_T")
_INTEGER = re.compile(r"-?[0-9]+", re.ASCII)


class PodError(ValueError):
    """A pod that cannot be read, or whose amounts cannot be counted; the message begins with the field's path."""


class RawNumber(str):
    """The text of a bare number in JSON: amounts are read by their text."""

    __slots__ = ()


def read_json(text: str | bytes) -> object:
    """Reads JSON and keeps numbers as they are written (`1e3`, `2.50`), as Kubernetes does for amounts."""
    return json.loads(text, parse_int=RawNumber, parse_float=RawNumber)


@dataclass(frozen=True, slots=True)
class Resources:
    """Requests and limits; absent and empty differ."""

    requests: Quantities | None = None
    limits: Quantities | None = None


@dataclass(frozen=True, slots=True)
class Container:
    """A container or init container; `always_restarted` makes an init container one that keeps running."""

    name: str
    always_restarted: bool
    resources: Resources


@dataclass(frozen=True, slots=True)
class ContainerStatus:
    """What a container runs with, and what its node has set aside for it."""

    name: str
    resources: Resources | None
    allocated: Quantities | None


@dataclass(frozen=True, slots=True)
class PodStatus:
    """A pod's status, as far as it matters."""

    phase: str
    nominated_node: str
    # The first condition `PodResizePending` has the reason `Infeasible`.
    resize_infeasible: bool
    containers: list[ContainerStatus]
    init_containers: list[ContainerStatus]
    resources: Resources | None
    allocated: Quantities | None


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod. Nothing is defaulted: absent, empty and zero are three things."""

    namespace: str
    name: str
    annotations: dict[str, str]
    labels: dict[str, str]
    deleting: bool
    scheduler_name: str
    node: str
    priority: int | None
    gated: bool
    scheduling_gates: list[str]
    priority_class: str
    containers: list[Container]
    init_containers: list[Container]
    overhead: Quantities | None
    resources: Resources | None
    status: PodStatus

    @staticmethod
    def read(pod: object) -> Pod:
        """Reads a pod; fields that do not matter for amounts are not looked at."""
        root = At(pod)
        root.mapping()
        metadata, spec = root.at("metadata"), root.at("spec")
        metadata.mapping()
        spec.mapping()
        return Pod(
            namespace=metadata.at("namespace").string(),
            name=metadata.at("name").string(),
            annotations=metadata.at("annotations").strings(),
            labels=metadata.at("labels").strings(),
            deleting=metadata.at("deletionTimestamp").value is not None,
            scheduler_name=spec.at("schedulerName").string(),
            node=spec.at("nodeName").string(),
            priority=spec.at("priority").int32(),
            gated=bool(spec.at("schedulingGates").items()),
            scheduling_gates=spec.at("schedulingGates").each(lambda gate: gate.at("name").string()),
            priority_class=spec.at("priorityClassName").string(),
            containers=spec.at("containers").each(_container),
            init_containers=spec.at("initContainers").each(_container),
            overhead=spec.at("overhead").quantities(),
            resources=_resources(spec.at("resources")),
            status=_status(root.at("status")),
        )


def _container(at: At) -> Container:
    restarted = at.at("restartPolicy").string() == "Always"
    return Container(at.at("name").string(), restarted, _resources(at.at("resources")) or Resources())


def _resources(at: At) -> Resources | None:
    if at.mapping() is None:
        return None
    return Resources(at.at("requests").quantities(), at.at("limits").quantities())


def _status(at: At) -> PodStatus:
    at.mapping()
    conditions = at.at("conditions").each(lambda item: (item.at("type").string(), item.at("reason").string()))
    resize = next((reason for kind, reason in conditions if kind == "PodResizePending"), "")
    return PodStatus(
        phase=at.at("phase").string(),
        nominated_node=at.at("nominatedNodeName").string(),
        resize_infeasible=resize == "Infeasible",
        containers=at.at("containerStatuses").each(_container_status),
        init_containers=at.at("initContainerStatuses").each(_container_status),
        resources=_resources(at.at("resources")),
        allocated=at.at("allocatedResources").quantities(),
    )


def _container_status(at: At) -> ContainerStatus:
    allocated = at.at("allocatedResources").quantities()
    return ContainerStatus(at.at("name").string(), _resources(at.at("resources")), allocated)


@dataclass(frozen=True, slots=True)
class At:
    """A place in a JSON document; `value` is None for an absent field and for null."""

    value: object
    path: str = ""

    def at(self, name: str) -> At:
        """A field of an object."""
        value = self.value.get(name) if isinstance(self.value, Mapping) else None
        return At(value, f"{self.path}.{name}" if self.path else name)

    def wrong(self, expected: str) -> PodError:
        """The error for a value of another type."""
        return PodError(f"{self.path or 'the pod'}: not {expected}")

    def mapping(self) -> Mapping[str, object] | None:
        """An object, if there is one."""
        if self.value is None and self.path:
            return None
        if not isinstance(self.value, Mapping):
            raise self.wrong("an object")
        return self.value

    def items(self) -> list[object]:
        """A list; empty if absent."""
        if self.value is None:
            return []
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return self.value

    def each(self, read: Callable[[At], _T]) -> list[_T]:
        """The items of a list, each an object."""
        places = [At(item, f"{self.path}[{index}]") for index, item in enumerate(self.items())]
        for place in places:
            place.mapping()
        return [read(place) for place in places]

    def each_string(self) -> list[str]:
        """The items of a list, each a string."""
        return [At(item, f"{self.path}[{index}]").string() for index, item in enumerate(self.items())]

    def string(self) -> str:
        """A string; empty if absent."""
        if self.value is None:
            return ""
        if not isinstance(self.value, str) or isinstance(self.value, RawNumber):
            raise self.wrong("a string")
        return self.value

    def boolean(self) -> bool | None:
        """A boolean, if there is one."""
        if self.value is None or isinstance(self.value, bool):
            return self.value
        raise self.wrong("a boolean")

    def int64(self) -> int | None:
        """A 64-bit integer, if there is one."""
        return self._integer(64)

    def int32(self) -> int | None:
        """A 32-bit integer, if there is one."""
        return self._integer(32)

    def _integer(self, bits: int) -> int | None:
        value = self.value
        if isinstance(value, RawNumber) and _INTEGER.fullmatch(value):
            value = int(value)
        if value is None:
            return None
        if not isinstance(value, int) or isinstance(value, bool) or not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
            raise self.wrong(f"a {bits}-bit integer")
        return value

    def _entries(self) -> Iterator[tuple[str, At]]:
        for key, value in (self.mapping() or {}).items():
            yield key, At(value, f"{self.path}[{json.dumps(key, ensure_ascii=False)}]")

    def strings(self) -> dict[str, str]:
        """An object of strings; empty if absent."""
        return {key: place.string() for key, place in self._entries()}

    def int32s(self) -> dict[str, int]:
        """An object of 32-bit integers; empty if absent."""
        return {key: place.int32() or 0 for key, place in self._entries()}

    def quantities(self) -> Quantities | None:
        """Amounts by resource name, if there are any."""
        if self.mapping() is None:
            return None
        return {name: place.quantity() for name, place in self._entries()}

    def quantity(self) -> Quantity:
        """A quantity that is not negative; null is 0."""
        if self.value is None:
            return Quantity.of(0, 0, Format.DECIMAL_EXPONENT)
        if isinstance(self.value, bool) or not isinstance(self.value, str | int | float):
            raise self.wrong("a quantity")
        try:
            quantity = Quantity.parse_in_object(str(self.value))
        except QuantityError as error:
            raise PodError(f"{self.path}: {error}") from None
        if quantity.sign < 0:
            raise PodError(f"{self.path}: `{quantity}` is negative")
        return quantity
