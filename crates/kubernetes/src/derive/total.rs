//! Amounts of a pod: sums over its containers, and the maximum over its start.

use super::pod::ResourceQuantities;
use pumice_engine::model::quantity::SumError;

/// Amounts by resource name.
pub(super) trait SummableAmounts: Clone + Default {
    /// Adds `more`, name by name.
    fn add(&mut self, more: &Self);
    /// Raises every amount to the amount of `other`, if `other` has more.
    fn raise_to(&mut self, other: &Self);
}

impl SummableAmounts for ResourceQuantities {
    fn add(&mut self, more: &Self) {
        for (name, quantity) in more {
            // A sum without a number is as far beyond any amount as the larger part is.
            let sum = self.get(name).map(|own| match own.add(quantity) {
                Ok(sum) => sum,
                Err(SumError) if own.cmp_value(quantity).is_gt() => own.clone(),
                Err(SumError) => quantity.clone(),
            });
            self.insert(name.clone(), sum.unwrap_or_else(|| quantity.clone()));
        }
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, quantity) in other {
            if self.get(name).is_none_or(|own| quantity.cmp_value(own).is_gt()) {
                self.insert(name.clone(), quantity.clone());
            }
        }
    }
}

/// Amounts of one init container.
pub(super) struct InitAmounts<T> {
    /// True if the init container keeps running beside the following ones.
    pub(super) sidecar: bool,
    pub(super) amounts: T,
}

/// Amounts of a pod, name by name: the sum of containers and sidecars, or the largest amount while it starts, whichever
/// is more (Kubernetes enhancement 753).
pub(super) fn pod_total<T: SummableAmounts>(containers: &[T], inits: &[InitAmounts<T>]) -> T {
    let mut running = T::default();
    for container in containers {
        running.add(container);
    }
    let (mut sidecars, mut starting) = (T::default(), T::default());
    for init in inits {
        if init.sidecar {
            running.add(&init.amounts);
            sidecars.add(&init.amounts);
            starting.raise_to(&sidecars);
        } else {
            let mut needed = init.amounts.clone();
            needed.add(&sidecars);
            starting.raise_to(&needed);
        }
    }
    running.raise_to(&starting);
    running
}
