//! Exact amounts by name, as quotas of namespaces count them: without rounding, and under names that no scheduler counts.

use std::sync::Arc;

use super::quantity::{Quantity, QuantityFormat};
use crate::held_bytes::held_bytes;

/// Amounts in billionths by name, sorted by name. No quantity of Kubernetes has a smaller part than a billionth.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExactQuantities(Vec<(Arc<str>, i128)>);

held_bytes! { ExactQuantities { 0 } }

impl ExactQuantities {
    /// Amount of a name, in billionths.
    pub fn get(&self, name: &str) -> Option<i128> {
        let at = self.0.binary_search_by(|(own, _)| (**own).cmp(name)).ok()?;
        self.0.get(at).map(|(_, amount)| *amount)
    }

    /// Names with their amounts in billionths.
    pub fn iter(&self) -> impl Iterator<Item = (&Arc<str>, i128)> {
        self.0.iter().map(|(name, amount)| (name, *amount))
    }

    /// True if the list is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds to the amount of a name; a sum beyond 128 bits stays at their end.
    pub fn add(&mut self, name: &Arc<str>, billionths: i128) {
        match self.0.binary_search_by(|(own, _)| own.cmp(name)) {
            Ok(at) => {
                if let Some((_, amount)) = self.0.get_mut(at) {
                    *amount = amount.saturating_add(billionths);
                }
            }
            Err(at) => self.0.insert(at, (Arc::clone(name), billionths)),
        }
    }

    /// Names of the amounts, in order.
    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().map(|(name, _)| name)
    }

    /// Names of the amounts, which may be replaced by equal texts.
    pub fn names_mut(&mut self) -> impl Iterator<Item = &mut Arc<str>> {
        self.0.iter_mut().map(|(name, _)| name)
    }

    /// Quantity text of an amount in billionths.
    pub fn text(billionths: i128) -> String {
        Quantity::from_parts(billionths, -9, QuantityFormat::DecimalSi).canonical()
    }
}

impl FromIterator<(Arc<str>, i128)> for ExactQuantities {
    fn from_iter<T: IntoIterator<Item = (Arc<str>, i128)>>(amounts: T) -> Self {
        let mut own = Self::default();
        for (name, amount) in amounts {
            own.add(&name, amount);
        }
        own
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_exact() {
        let billionths = |text: &str| Quantity::parse(text).unwrap().billionths();
        assert_eq!(["900001u", "0.9"].map(billionths), [900_001_000, 900_000_000]);
        assert_eq!(
            ["-3", "0.5Gi"].map(billionths),
            [-3_000_000_000, (1 << 29) * 1_000_000_000]
        );
        assert_eq!(billionths("1e37"), 10_i128.pow(30));
        assert_eq!(
            ["900001u", "1500m", "3"].map(|text| ExactQuantities::text(billionths(text))),
            ["900001u", "1500m", "3"]
        );
    }

    #[test]
    fn amounts_of_one_name_add_up() {
        let of = |pairs: &[(&str, i128)]| -> ExactQuantities {
            pairs.iter().map(|(name, amount)| (Arc::from(*name), *amount)).collect()
        };
        let sum = of(&[("pods", 1), ("cpu", i128::MAX), ("cpu", 1), ("pods", 2)]);
        assert_eq!(sum, of(&[("cpu", i128::MAX), ("pods", 3)]));
        assert_eq!((sum.get("pods"), sum.get("gpu")), (Some(3), None));
    }
}
