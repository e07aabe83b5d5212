"""Every recorded pod, through the five derivations."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
import vectors

from pumice.derive import (
    KubernetesAmounts,
    MissingCardError,
    Pod,
    PodError,
    Release,
    card,
    effective,
    fit_plus,
    kubernetes,
    volcano,
)
from pumice.derive.pod import Quantities, RawNumber
from pumice.derive.volcano import Amounts
from pumice.resource import AmountError, Unit, kind_of

Block = dict[str, Any]


def canonical(quantities: Quantities) -> dict[str, str]:
    return {name: quantity.canonical() for name, quantity in quantities.items()}


def kubernetes_block(amounts: KubernetesAmounts) -> Block:
    scalars = dict(amounts.counted)
    counted: Block = {
        "cpu_milli": scalars.pop("cpu", 0),
        "memory": scalars.pop("memory", 0),
        "ephemeral_storage": scalars.pop("ephemeral-storage", 0),
        "scalars": scalars,
    }
    return {
        "requests": canonical(amounts.requests),
        "limits": canonical(amounts.limits),
        "counted": counted,
        "nonzero": {"cpu_milli": amounts.nonzero_cpu_milli, "memory": amounts.nonzero_memory},
    }


def vector(amounts: Amounts) -> Block:
    rounded = {name: amount.rounded for name, amount in amounts.items()}
    cpu, memory = rounded.pop("cpu", 0.0), rounded.pop("memory", 0.0)
    return {"cpu": cpu, "memory": memory, "scalars": {name: n for name, n in rounded.items() if n != 0}}


def volcano_block(pod: Pod) -> Block:
    task = volcano(pod)
    names = ("best_effort", "has_sidecar", "scheduling_gated", "status", "node", "priority", "preemptable")
    block: Block = {name: getattr(task, name) for name in (*names, "revocable_zone")}
    vectors_of = {"resreq": task.resreq(), "without_init": task.without_init, "limit": task.limit}
    return block | {name: vector(amounts) for name, amounts in vectors_of.items()}


def card_block(pod: Pod) -> Block:
    amounts = card(pod)
    try:
        cards: Block = {"milli": float(amounts.cards_milli("nvidia.com/gpu"))}
    except MissingCardError:
        cards = {"error": True}
    return {
        "requests": canonical(amounts.requests),
        "limits": canonical(amounts.limits),
        "card_gpu": cards,
        "resreq": vector(amounts.resreq),
        "best_effort": amounts.best_effort,
    }


def koordinator_block(pod: Pod) -> Block:
    amounts = fit_plus(pod)
    return {"names": sorted(amounts), "amounts": amounts}


SERVED = {
    "kubernetes": lambda pod: kubernetes_block(kubernetes(pod)),
    "kubernetes_1_35": lambda pod: kubernetes_block(kubernetes(pod, Release.V1_35)),
    "volcano": volcano_block,
    "koordinator": koordinator_block,
    "card": card_block,
}


def recorded(value: object) -> object:
    """Recorded numbers as numbers, doubles without zeros, the text of an error left out."""
    if isinstance(value, RawNumber):
        return int(value) if re.fullmatch(r"-?[0-9]+", value) else float(value)
    if isinstance(value, list):
        return [recorded(item) for item in value]
    if isinstance(value, dict):
        simple = {name: name == "error" or recorded(field) for name, field in value.items()}
        if "scalars" in simple:
            entries = simple["scalars"]
            assert isinstance(entries, dict)
            simple["scalars"] = {n: a for n, a in entries.items() if isinstance(a, int) or a != 0}
        return simple
    return value


def texts(value: object) -> Iterator[tuple[str, str]]:
    """The entries of every resource list in the pod."""
    if isinstance(value, list):
        for item in value:
            yield from texts(item)
    if isinstance(value, dict):
        for name, field in value.items():
            if name in ("requests", "limits", "overhead", "allocatedResources") and isinstance(field, dict):
                yield from ((key, str(text).strip()) for key, text in field.items() if isinstance(text, str))
            else:
                yield from texts(field)


def had_to_be_refused(pod: object, block: str, expect: Block) -> bool:
    """Some amount is no amount, or beyond 64 bits in the unit of the block."""
    found = list(texts(pod))
    if any(vectors.is_refused(text) or text.startswith("-") for _, text in found):
        return True
    found += [entry for sums in ("requests", "limits") for entry in expect.get(sums, {}).items()]
    for name, text in found:
        kind = kind_of(name)
        unit = kind.unit if block in ("volcano", "card") else kind.kubernetes_unit
        amount = vectors.exact(text, 3 if unit is Unit.MILLI else 0)
        if amount is None or amount >= 2**63:
            return True
    return False


def check(case: vectors.Case) -> list[str]:
    wrong = []
    for block, expect in case["expect"].items():
        try:
            got = SERVED[block](Pod.read(case["pod"]))
        except (PodError, AmountError) as error:
            if not had_to_be_refused(case["pod"], block, expect):
                wrong.append(f"{case['name']} {block}: refused: {error}")
            continue
        for field, wanted in expect.items():
            if field not in ("panic", "upstream_panics") and recorded(wanted) != got[field]:
                wrong.append(f"{case['name']} {block}.{field}: {recorded(wanted)} != {got[field]}")
    return wrong


def test_recorded_pods() -> None:
    found = vectors.cases("pods")
    wrong = [line for case in found for line in check(case)]
    assert not wrong, f"{len(wrong)} differ:\n" + "\n".join(wrong[:10])
    print(f"pods: {len(found)} passed, 0 failed")


def pod(**spec: object) -> Pod:
    return Pod.read({"metadata": {"name": "p", "namespace": "ns"}, "spec": spec})


def requesting(**requests: object) -> dict[str, object]:
    return {"resources": {"requests": requests}}


def test_volcano_rounds_each_container_and_kubernetes_the_pod() -> None:
    tiny = requesting(cpu="0.1m", **{"nvidia.com/gpu": "500m"})
    three = pod(containers=[tiny, tiny, tiny])
    assert effective(three, "kubernetes").requests == {"cpu": "1m", "nvidia.com/gpu": "2"}
    assert effective(three, "volcano").requests == {"cpu": "3m", "nvidia.com/gpu": "1500m"}
    assert effective(three, "volcano").counted_requests == {"cpu": "3m", "nvidia.com/gpu": "3"}


def test_the_scheduler_chooses_the_derivation() -> None:
    half = requesting(**{"nvidia.com/gpu": "500m"})
    for scheduler, gpus in [("", "1"), ("koord-scheduler", "1"), ("volcano", "500m"), ("mine", "500m")]:
        task = effective(pod(containers=[half], schedulerName=scheduler))
        assert task.requests == {"nvidia.com/gpu": gpus}, scheduler
    with pytest.raises(ValueError, match="known: auto, kubernetes, volcano"):
        effective(pod(containers=[]), "mine")


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"containers": {}}, "spec.containers: not a list"),
        ({"containers": [1]}, "spec.containers[0]: not an object"),
        ({"overhead": {"cpu": "-1"}}, 'spec.overhead["cpu"]: `-1` is negative'),
        ({"overhead": {"cpu": True}}, 'spec.overhead["cpu"]: not a quantity'),
        ({"priority": 3_000_000_000}, "spec.priority: not a 32-bit integer"),
    ],
)
def test_errors_name_their_place(spec: dict[str, object], message: str) -> None:
    with pytest.raises(PodError) as refused:
        pod(**spec)
    assert str(refused.value) == message


def test_amounts_that_do_not_fit_are_refused() -> None:
    large = pod(containers=[requesting(memory="10E")])
    with pytest.raises(AmountError, match="`10E` of `memory` is too large: the limit is 9223372036854775807"):
        kubernetes(large)
    half = requesting(memory="5Ei")
    with pytest.raises(AmountError):
        effective(pod(containers=[half, half]), "volcano")
