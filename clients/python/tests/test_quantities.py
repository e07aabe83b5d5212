"""Every recorded quantity, and what no recording holds."""

from __future__ import annotations

import math

import pytest
import vectors

from pumice import resource
from pumice.quantity import Format, Quantity, QuantityError, RangeError
from pumice.resource import Unit

INT64 = range(-(2**63), 2**63)


def parsed(text: str, *, in_object: bool = False) -> Quantity | None:
    try:
        return Quantity.parse_in_object(text) if in_object else Quantity.parse(text)
    except QuantityError:
        return None


def floating(recorded: str) -> float:
    return float(recorded.replace("Inf", "inf").replace("NaN", "nan"))


def convert(quantity: Quantity, field: str) -> int | None:
    try:
        return quantity.value() if field == "value" else quantity.milli()
    except RangeError:
        return None


def conversions(text: str, quantity: Quantity, expect: vectors.Case) -> None:
    """A recorded number is compared where it is the exact one; elsewhere the conversion is refused."""
    for field, places in (("value", 0), ("milli", 3)):
        recorded = int(expect[field])
        wanted = recorded if recorded == vectors.exact(text, places) else None
        assert convert(quantity, field) == wanted, field


def amounts(quantity: Quantity, expect: vectors.Case) -> None:
    milli, whole = convert(quantity, "milli"), convert(quantity, "value")
    volcano = (("cpu", "cpu", milli), ("memory", "memory", whole), ("scalar", "nvidia.com/gpu", milli))
    for field, name, right in (*volcano, ("pods", "pods", whole)):
        if right is None or right < 0:
            with pytest.raises(resource.AmountError):
                resource.amount(name, quantity)
        else:
            assert float(resource.amount(name, quantity)) == float(expect["volcano"][field])
    for field, unit, right in (("cpu", Unit.MILLI, milli), ("other", Unit.WHOLE, whole)):
        if right is not None and right >= 0:
            assert resource.amount_in(unit, field, quantity) == int(expect["koordinator"][field])


def check(case: vectors.Case) -> None:
    text, expect = case["in"], case["expect"]
    quantity = parsed(text)
    refused = "error" in expect or "hang" in expect or vectors.is_refused(text)
    assert (quantity is None) == refused
    if quantity is not None:
        assert quantity.canonical() == expect["canonical"]
        assert quantity.format.value == expect["format"]
        assert quantity.sign == int(expect["sign"])
        wanted, got = floating(expect["approx_f64"]), quantity.approximate()
        assert got == wanted or (math.isnan(got) and math.isnan(wanted))
        conversions(text, quantity, expect)
        amounts(quantity, expect)
    trimmed = parsed(text, in_object=True)
    if "in_object" in expect:
        recorded = expect["in_object"]
        assert (trimmed is None) == ("error" in recorded or vectors.is_refused(text.strip()))
        if trimmed is not None:
            assert trimmed.canonical() == recorded["canonical"]
            conversions(text.strip(), trimmed, recorded)
    else:
        assert (trimmed is None) == (quantity is None)


def test_recorded_quantities() -> None:
    failed = []
    recorded = vectors.cases("quantities")
    for case in recorded:
        try:
            check(case)
        except AssertionError as error:
            failed.append(f"{case['name']} `{case['in']!r}`: {error}")
    assert not failed, f"{len(failed)} of {len(recorded)} differ:\n" + "\n".join(failed[:10])
    print(f"quantities: {len(recorded)} passed, 0 failed")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("", "format"),
        (" 1", "format"),
        ("1 Gi", "format"),
        ("0x10", "format"),
        ("\u0661", "format"),
        ("1\n", "format"),
        ("1K", "suffix"),
        ("1e", "suffix"),
        ("1e18446744073709551616", "suffix"),
        ("+", "numeric"),
        ("Gi", "numeric"),
        ("1e2147483648", "too-large"),
        ("1e-1000000000", "too-large"),
        ("1" * 5000, "too-large"),
    ],
)
def test_errors_say_why(text: str, kind: str) -> None:
    with pytest.raises(QuantityError) as refused:
        Quantity.parse(text)
    assert refused.value.kind == kind


def test_texts_read_back_as_the_same_amount() -> None:
    for text in ("+1.500", "1000000000000000000000", "0.1Ki", "1e5", "16Gi", "-1n", "1e30", "1e2147483647"):
        quantity = Quantity.parse(text)
        assert Quantity.parse(str(quantity)).compare(quantity) == 0, text
    assert str(Quantity.of(1500, -3)) == "1500m"
    assert str(Quantity.of(1 << 34, 0, Format.BINARY_SI)) == "16Gi"
    assert str(Quantity.parse("1000000000000000000000")) == "1e21"


def test_amounts_compare_and_add_exactly() -> None:
    texts = ["-1e2147483647", "-2", "-1n", "0", "1n", "1m", "999m", "1", "1Ki", "1e30", "1e2147483647"]
    ordered = [Quantity.parse(text) for text in texts]
    for at, left in enumerate(ordered):
        for other, right in enumerate(ordered):
            assert left.compare(right) == (at > other) - (at < other), (left, right)
    assert (Quantity.parse("0.1") + Quantity.parse("0.2")).canonical() == "300m"
    assert (Quantity.parse("0") + Quantity.parse("1Gi")).canonical() == "1Gi"
    assert len(str(Quantity.parse("1e60") + Quantity.parse("1n"))) == 73
    with pytest.raises(RangeError):
        Quantity.parse("1e2147483647") + Quantity.parse("1")


def test_kinds_follow_the_naming_rules() -> None:
    known = {
        "cpu": "cpu",
        "hugepages-2Mi": "scalar",
        "requests.kubernetes.io/x": "scalar",
        "nvidia.com/gpu": "scalar",
        "huawei.com/Ascend910": "scalar",
        "count/pods": "count-quota",
        "gpu": "uncounted",
        "a/b/c": "uncounted",
        "requests.nvidia.com/gpu": "uncounted",
        "NVIDIA.com/gpu": "uncounted",
        "nvidia.com/_x": "uncounted",
        "nvidia.com/gpu\n": "uncounted",
        f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 61}/x": "scalar",
        f"{'a' * 60}.{'b' * 60}.{'c' * 60}.{'d' * 62}/x": "uncounted",
        f"a.b/{'x' * 63}": "scalar",
        f"a.b/{'x' * 64}": "uncounted",
    }
    assert {name: resource.kind_of(name).value for name in known} == known
