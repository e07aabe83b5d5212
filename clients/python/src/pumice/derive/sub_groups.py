"""Groups of a job's tasks by the labels of pods (Volcano ed72c7c81, sub_job_info.go)."""

from __future__ import annotations

from pumice import v1
from pumice.derive.pod import At

__all__ = ["sub_group", "sub_group_policies"]

# Most bytes of a group's values; longer ones are cut to a hash.
_MAX_VALUE_BYTES = 128


def sub_group_policies(root: At) -> list[v1.SubGroupPolicy]:
    """spec.subGroupPolicy of a Volcano PodGroup."""
    return (
        root.at("spec")
        .at("subGroupPolicy")
        .each(
            lambda policy: v1.SubGroupPolicy(
                name=policy.at("name").string(),
                size=policy.at("subGroupSize").int32(),
                min_groups=policy.at("minSubGroups").int32(),
            )
        )
    )


def sub_group(pod_group: At, labels: dict[str, str]) -> str:
    """The group of a pod with these labels: by the first policy of its PodGroup that is about it; empty: none is."""
    groups = pod_group.at("spec").at("subGroupPolicy").each(lambda policy: _group_of(policy, labels))
    return next((group for group in groups if group), "")


def _group_of(policy: At, labels: dict[str, str]) -> str:
    keys = policy.at("matchLabelKeys").each_string()
    values = [labels.get(key, "") for key in keys]
    if not keys or not all(values) or not _selects(policy.at("labelSelector"), labels):
        return ""
    value = "-".join(values)
    if len(value.encode()) > _MAX_VALUE_BYTES:
        value = f"{_fnv32a(value):08x}"
    return f"{policy.at('name').string()}/{value}"


def _selects(selector: At, labels: dict[str, str]) -> bool:
    if any(labels.get(key) != value for key, value in selector.at("matchLabels").strings().items()):
        return False
    return all(selector.at("matchExpressions").each(lambda expression: _holds(expression, labels)))


def _holds(expression: At, labels: dict[str, str]) -> bool:
    key, operator = expression.at("key").string(), expression.at("operator").string()
    found, listed = key in labels, labels.get(key) in expression.at("values").each_string()
    # A selector that Volcano cannot read matches nothing.
    return {
        "In": found and listed,
        "NotIn": not found or not listed,
        "Exists": found,
        "DoesNotExist": not found,
    }.get(operator, False)


def _fnv32a(text: str) -> int:
    number = 0x811C9DC5
    for byte in text.encode():
        number = (number ^ byte) * 0x01000193 % 2**32
    return number
