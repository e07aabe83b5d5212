"""Every recorded quantity, and what no recording holds."""

from __future__ import annotations

import pytest
import vectors

from pumice.quantity import Format, Quantity, QuantityError, RangeError


def parsed(text: str) -> Quantity | None:
    try:
        return Quantity.parse(text)
    except QuantityError:
        return None


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


def check(case: vectors.Case) -> None:
    text, expect = case["in"], case["expect"]
    quantity = parsed(text)
    refused = "error" in expect or "hang" in expect or vectors.is_refused(text)
    assert (quantity is None) == refused
    if quantity is not None:
        assert quantity.canonical() == expect["canonical"]
        assert quantity.format.value == expect["format"]
        assert quantity.sign == int(expect["sign"])
        conversions(text, quantity, expect)


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
