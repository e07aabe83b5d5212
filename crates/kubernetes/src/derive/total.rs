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

/// Amounts of the containers of a pod.
pub(super) struct ContainerAmounts<T> {
    /// Amounts of each container that starts after the init containers.
    pub(super) containers: Vec<T>,
    /// Amounts of init containers in their order; true for a sidecar, which keeps running beside the following ones.
    pub(super) inits: Vec<(bool, T)>,
}

impl<T> ContainerAmounts<T> {
    /// Amounts of each container as `read` counts them, or the first error.
    pub(super) fn try_map<U, E>(&self, read: impl Fn(&T) -> Result<U, E>) -> Result<ContainerAmounts<U>, E> {
        let containers = self.containers.iter().map(&read);
        let inits = self.inits.iter();
        Ok(ContainerAmounts {
            containers: containers.collect::<Result<_, E>>()?,
            inits: inits
                .map(|(is_sidecar, own)| Ok((*is_sidecar, read(own)?)))
                .collect::<Result<_, E>>()?,
        })
    }
}

impl<T: SummableAmounts> ContainerAmounts<T> {
    /// Amounts of the pod, name by name: the sum of containers and sidecars, or the largest amount while it starts, whichever
    /// is more (Kubernetes enhancement 753).
    pub(super) fn total(&self) -> T {
        let mut running = T::default();
        for container in &self.containers {
            running.add(container);
        }
        let (mut sidecars, mut starting) = (T::default(), T::default());
        for (is_sidecar, own) in &self.inits {
            if *is_sidecar {
                running.add(own);
                sidecars.add(own);
                starting.raise_to(&sidecars);
            } else {
                let mut needed = own.clone();
                needed.add(&sidecars);
                starting.raise_to(&needed);
            }
        }
        running.raise_to(&starting);
        running
    }
}
