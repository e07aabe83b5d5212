//! From the amounts of containers to those of their pod: sums, and the maximum over the starting phase.

use super::error::PodError;
use super::pod::ResourceQuantities;

/// Amounts by resource name.
pub(super) trait SummableAmounts: Clone + Default {
    /// Adds `more`, name by name.
    fn add(&mut self, more: &Self) -> Result<(), PodError>;
    /// Raises every amount that `other` has more of.
    fn raise_to(&mut self, other: &Self);
}

impl SummableAmounts for ResourceQuantities {
    fn add(&mut self, more: &Self) -> Result<(), PodError> {
        for (name, quantity) in more {
            let sum = match self.get(name) {
                None => quantity.clone(),
                Some(sum) => sum.add(quantity).map_err(|error| PodError::Sum {
                    name: name.clone(),
                    error,
                })?,
            };
            self.insert(name.clone(), sum);
        }
        Ok(())
    }

    fn raise_to(&mut self, other: &Self) {
        for (name, quantity) in other {
            if self.get(name).is_none_or(|own| quantity.cmp_value(own).is_gt()) {
                self.insert(name.clone(), quantity.clone());
            }
        }
    }
}

/// The amounts of one init container.
pub(super) struct InitAmounts<T> {
    /// It keeps running beside those that follow.
    pub(super) sidecar: bool,
    pub(super) amounts: T,
}

/// What a pod needs: the sum of containers and sidecars, or the largest need while it starts, name by name
/// (Kubernetes enhancement 753).
pub(super) fn pod_total<T: SummableAmounts>(containers: &[T], inits: &[InitAmounts<T>]) -> Result<T, PodError> {
    let mut running = T::default();
    for container in containers {
        running.add(container)?;
    }
    let (mut sidecars, mut starting) = (T::default(), T::default());
    for init in inits {
        if init.sidecar {
            running.add(&init.amounts)?;
            sidecars.add(&init.amounts)?;
            starting.raise_to(&sidecars);
        } else {
            let mut needed = init.amounts.clone();
            needed.add(&sidecars)?;
            starting.raise_to(&needed);
        }
    }
    running.raise_to(&starting);
    Ok(running)
}
