//! Family `quantities`: one string through the parser and the conversions.
//!
//! Upstream's conversions are wrong on overflow and for some negatives. A recorded number is compared where it is the
//! exact one, computed here by a second, naive reading of the text; elsewhere the conversion must fail.

use pumice::server::pb;
use pumice_engine::model::quantity::{Quantity, RangeError};
use pumice_engine::model::resource_name::{AmountUnit, amount, amount_in};
use serde_json::{Value, json};

use super::pods::listed_task;
use super::{VectorDifferences, VectorHarness, VectorVerdict};

/// Judges one case.
pub(crate) fn check(bench: &mut VectorHarness, case: &Value) -> VectorVerdict {
    let text = case["in"].as_str().unwrap_or_default();
    let expect = &case["expect"];
    let mut judge = QuantityComparison::default();
    judge.parsed(text, Quantity::parse(text).ok().as_ref(), expect);
    let trimmed = Quantity::parse_in_object(text).ok();
    match expect.get("in_object") {
        Some(in_object) => judge.in_object(text.trim(), trimmed.as_ref(), in_object),
        None => judge.same("in_object refused", Quantity::parse(text).is_err(), trimmed.is_none()),
    }
    judge.over_the_wire(bench, text, expect);
    judge.0.verdict()
}

/// Compares the values of one text with the recorded ones.
#[derive(Default)]
struct QuantityComparison(VectorDifferences);

impl QuantityComparison {
    #[expect(clippy::needless_pass_by_value, reason = "callers build both values in place")]
    fn same<T: PartialEq + std::fmt::Debug>(&mut self, what: &str, expected: T, got: T) {
        self.0.same(what, &expected, &got);
    }

    fn parsed(&mut self, text: &str, parsed: Option<&Quantity>, expect: &Value) {
        let refused = expect.get("error").is_some() || expect.get("hang").is_some() || is_rejected(text);
        self.same("refused", refused, parsed.is_none());
        let (false, Some(quantity)) = (refused, parsed) else {
            return;
        };
        self.same("canonical", expect["canonical"].as_str(), Some(&quantity.canonical()));
        self.same("format", expect["format"].as_str(), Some(quantity.format().name()));
        self.same("sign", expect["sign"].as_i64(), Some(quantity.sign().into()));
        let approx = quantity.approx_f64();
        // There is one NaN, whatever its bits.
        let approx = if approx.is_nan() { f64::NAN } else { approx };
        self.0.same_float("approx_f64", float(&expect["approx_f64"]), approx);
        self.conversions(text, quantity, expect);
        self.amounts(quantity, expect);
    }

    fn conversions(&mut self, text: &str, quantity: &Quantity, expect: &Value) {
        for (field, digits, got) in [("value", 0, quantity.value()), ("milli", 3, quantity.milli())] {
            let recorded = expect[field].as_i64();
            if recorded.map(i128::from) == exact(text, digits) {
                self.same(field, recorded, got.ok());
            } else {
                self.same(&format!("{field} refused"), true, got.is_err());
            }
        }
    }

    /// Compares the amounts of both consumers: with the recorded conversions where those are right and not negative.
    fn amounts(&mut self, quantity: &Quantity, expect: &Value) {
        let right = |converted: Result<i64, RangeError>| converted.ok().filter(|amount| *amount >= 0);
        let (whole, milli) = (right(quantity.value()), right(quantity.milli()));
        for (field, name, served) in [
            ("cpu", "cpu", milli),
            ("memory", "memory", whole),
            ("scalar", "nvidia.com/gpu", milli),
            ("pods", "pods", whole),
        ] {
            let expected = served.and_then(|_| expect["volcano"][field].as_f64());
            self.same(
                &format!("volcano {field}"),
                expected,
                amount(name, quantity).ok().map(|n| n as f64),
            );
        }
        for (field, unit, served) in [("cpu", AmountUnit::Milli, milli), ("other", AmountUnit::Whole, whole)] {
            let expected = served.and_then(|_| expect["koordinator"][field].as_i64());
            self.same(
                &format!("koordinator {field}"),
                expected,
                amount_in(unit, field, quantity).ok(),
            );
        }
    }

    /// Compares the amount that the server lists of a pod with this request, which came as an object.
    fn over_the_wire(&mut self, bench: &VectorHarness, text: &str, expect: &Value) {
        let in_object = expect.get("in_object").unwrap_or(expect);
        let trimmed = text.trim();
        let refused = in_object.get("error").is_some() || in_object.get("hang").is_some() || is_rejected(trimmed);
        let pod = json!({
            "metadata": {"name": "p"},
            "spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": text}}}]},
        });
        let listed = listed_task(bench, &json!({"pod": pod}), pb::PodRules::Volcano);
        let is_amount = exact(trimmed, 3).is_some_and(|amount| (0..=i64::MAX.into()).contains(&amount));
        if refused || trimmed.starts_with('-') && exact(trimmed, 3) != Some(0) {
            self.same("over the wire refused", true, listed.is_err());
        } else if is_amount {
            let cpu = listed.map(|task| {
                task.requests
                    .unwrap_or_default()
                    .items
                    .remove("cpu")
                    .unwrap_or_default()
            });
            let cpu = cpu.map(|text| amount("cpu", &Quantity::parse(&text).unwrap()).ok().map(i128::from));
            self.same("over the wire", Ok(exact(trimmed, 3)), cpu);
        }
    }

    fn in_object(&mut self, text: &str, parsed: Option<&Quantity>, expect: &Value) {
        let refused = expect.get("error").is_some() || is_rejected(text);
        self.same("in_object refused", refused, parsed.is_none());
        let (false, Some(quantity)) = (refused, parsed) else {
            return;
        };
        self.same(
            "in_object canonical",
            expect["canonical"].as_str(),
            Some(&quantity.canonical()),
        );
        self.conversions(text, quantity, expect);
    }
}

/// Recorded float.
fn float(recorded: &Value) -> f64 {
    match recorded.as_str() {
        Some("+Inf") => f64::INFINITY,
        Some("-Inf") => f64::NEG_INFINITY,
        Some(_) => f64::NAN,
        None => recorded.as_f64().unwrap_or(f64::NAN),
    }
}

/// Digits that Pumice reads at the most; zeros in front do not count.
const MAX_DIGITS: usize = 38;

/// Parts of a text: sign, digits, number of digits after the point, suffix.
fn split(text: &str) -> (bool, String, usize, &str) {
    let number = text.trim_start_matches(['+', '-']);
    let end = number
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(number.len());
    let (digits, suffix) = number.split_at(end);
    let fraction = digits.find('.').map_or(0, |point| digits.len() - point - 1);
    (text.starts_with('-'), digits.replace('.', ""), fraction, suffix)
}

/// Powers of ten and of two of a suffix; `None` if its exponent does not fit in 32 bits.
fn powers(suffix: &str) -> Option<(i64, u32)> {
    let place = |letters: &str, letter: &str| letters.find(letter).and_then(|at| u32::try_from(at).ok());
    match suffix {
        "" => Some((0, 0)),
        _ if suffix.ends_with('i') => Some((0, place("KMGTPE", suffix.get(..1)?)? * 10 + 10)),
        _ if suffix.len() == 1 => Some((i64::from(place("num?kMGTPE", suffix)?) * 3 - 9, 0)),
        _ => Some((suffix.get(1..)?.parse::<i32>().ok()?.into(), 0)),
    }
}

/// True for texts that upstream reads as some number and Pumice rejects.
pub(super) fn is_rejected(text: &str) -> bool {
    let (_, digits, _, suffix) = split(text);
    let counted = digits.trim_start_matches('0').len();
    digits.is_empty() || powers(suffix).is_none() || counted > MAX_DIGITS
}

/// Number of 10^-`places` in the text, rounded away from zero; `None` if it has more than 30 digits.
pub(super) fn exact(text: &str, places: i64) -> Option<i128> {
    let (negative, digits, fraction, suffix) = split(text);
    let (tens, twos) = powers(suffix)?;
    // The least significant digit first.
    let mut number: Vec<u8> = digits.bytes().rev().map(|digit| digit - b'0').collect();
    for _ in 0..twos {
        let mut carry = 0;
        for digit in &mut number {
            let doubled = *digit * 2 + carry;
            (*digit, carry) = (doubled % 10, doubled / 10);
        }
        number.push(carry);
    }
    while number.last() == Some(&0) {
        number.pop();
    }
    if number.is_empty() {
        return Some(0);
    }
    let shift = tens - i64::try_from(fraction).ok()? + places;
    if i64::try_from(number.len()).ok()? + shift > 30 {
        return None;
    }
    let dropped = number.len().min(usize::try_from(-shift).unwrap_or(0));
    let rest = number.iter().take(dropped).any(|digit| *digit != 0);
    let leading = number
        .iter()
        .skip(dropped)
        .rev()
        .fold(0_i128, |sum, digit| sum * 10 + i128::from(*digit));
    let magnitude = leading * 10_i128.pow(u32::try_from(shift).unwrap_or(0)) + i128::from(rest);
    Some(if negative { -magnitude } else { magnitude })
}
