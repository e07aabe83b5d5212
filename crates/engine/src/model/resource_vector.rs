//! Resource vectors with the comparisons of Volcano's quota plugins and gangs: amounts are floats, and each of
//! Volcano's comparisons has a name.
//!
//! Cpu and memory are always present. Any other resource (a *scalar*, including `pods`) may be missing; some
//! comparisons distinguish a missing scalar from 0. The last argument of a comparison is a request: only its resources
//! are compared.

use smallvec::SmallVec;

use super::amounts::{ResourceAmounts, ResourceId, ResourceTotals};
use super::class::MIN_AMOUNT;
use crate::held_bytes::held_bytes;

/// Amount of cpu and memory in a vector without limits.
pub const UNLIMITED_AMOUNT: f64 = f64::MAX;
/// Scalar in a vector that limits nothing: the largest 64-bit integer as a float.
pub const UNLIMITED_SCALAR: f64 = 9_223_372_036_854_775_807.0;
/// Scalar that the reference takes for unlimited where it subtracts amounts from each other.
pub(crate) const UNLIMITED_MARK: i8 = -1;

/// Amounts of resources in the engine's unit of each (milli-cores, bytes, pods, thousandths of the others).
///
/// Equality also compares presence: a scalar of 0 differs from a missing scalar.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ResourceVector {
    cpu: f64,
    memory: f64,
    /// Sorted by id.
    scalars: SmallVec<[(ResourceId, f64); 3]>,
}

held_bytes! { ResourceVector { scalars; cpu, memory } }

/// Resource that the comparisons with a request leave out.
fn is_ignored(id: ResourceId) -> bool {
    id == ResourceId::PODS
}

/// True if the first amount is below the second one, or equal to it within [`MIN_AMOUNT`].
fn is_at_most(amount: f64, limit: f64) -> bool {
    amount < limit || (amount - limit).abs() < MIN_AMOUNT
}

impl From<&ResourceAmounts> for ResourceVector {
    fn from(amounts: &ResourceAmounts) -> Self {
        amounts
            .iter()
            .map(|(id, amount)| (id, amounts.exact(id).map_or(amount as f64, |exact| exact as f64)))
            .collect()
    }
}

impl From<&ResourceTotals> for ResourceVector {
    fn from(totals: &ResourceTotals) -> Self {
        totals.iter().map(|(id, total)| (id, total as f64)).collect()
    }
}

impl FromIterator<(ResourceId, f64)> for ResourceVector {
    fn from_iter<I: IntoIterator<Item = (ResourceId, f64)>>(entries: I) -> Self {
        let mut vector = Self::default();
        for (id, amount) in entries {
            // Most lists are sorted.
            if id > ResourceId::MEMORY && vector.scalars.last().is_none_or(|(last, _)| *last < id) {
                vector.scalars.push((id, amount));
            } else {
                vector.set(id, amount);
            }
        }
        vector
    }
}

impl ResourceVector {
    /// Vector of cpu and memory, without scalars.
    pub fn new(cpu: f64, memory: f64) -> Self {
        Self {
            cpu,
            memory,
            scalars: SmallVec::new(),
        }
    }

    fn find(&self, id: ResourceId) -> Result<usize, usize> {
        self.scalars.binary_search_by_key(&id, |&(id, _)| id)
    }

    /// Amount of a resource; `None`: a scalar that is missing.
    pub fn get(&self, id: ResourceId) -> Option<f64> {
        match id {
            ResourceId::CPU => Some(self.cpu),
            ResourceId::MEMORY => Some(self.memory),
            _ => self.scalars.get(self.find(id).ok()?).map(|&(_, amount)| amount),
        }
    }

    /// Amount of a resource, 0 if it is missing.
    pub fn amount(&self, id: ResourceId) -> f64 {
        self.get(id).unwrap_or(0.0)
    }

    /// Place of a resource, which becomes present.
    fn slot(&mut self, id: ResourceId) -> Option<&mut f64> {
        match id {
            ResourceId::CPU => Some(&mut self.cpu),
            ResourceId::MEMORY => Some(&mut self.memory),
            _ => {
                let at = match self.find(id) {
                    Ok(found) => found,
                    Err(place) => {
                        self.scalars.insert(place, (id, 0.0));
                        place
                    }
                };
                self.scalars.get_mut(at).map(|(_, amount)| amount)
            }
        }
    }

    /// Sets the amount of a resource, which becomes present.
    pub fn set(&mut self, id: ResourceId, amount: f64) {
        if let Some(place) = self.slot(id) {
            *place = amount;
        }
    }

    /// Removes a scalar. Cpu and memory become 0.
    pub fn remove(&mut self, id: ResourceId) {
        match self.find(id) {
            Ok(found) => {
                self.scalars.remove(found);
            }
            Err(_) if id <= ResourceId::MEMORY => self.set(id, 0.0),
            Err(_) => {}
        }
    }

    /// True if any scalar is present.
    pub fn has_scalars(&self) -> bool {
        !self.scalars.is_empty()
    }

    /// Scalars that are present, by id.
    pub fn scalars(&self) -> impl Iterator<Item = (ResourceId, f64)> + '_ {
        self.scalars.iter().copied()
    }

    /// All amounts: cpu, memory, then the scalars that are present by id.
    pub fn iter(&self) -> impl Iterator<Item = (ResourceId, f64)> + '_ {
        [(ResourceId::CPU, self.cpu), (ResourceId::MEMORY, self.memory)]
            .into_iter()
            .chain(self.scalars())
    }

    /// Resources with at least [`MIN_AMOUNT`] (NAMES).
    pub fn named_resources(&self) -> impl Iterator<Item = ResourceId> + '_ {
        self.iter()
            .filter(|(_, amount)| *amount >= MIN_AMOUNT)
            .map(|(id, _)| id)
    }

    /// True if there is less than [`MIN_AMOUNT`] of everything but pods (EMPTY).
    pub fn is_empty(&self) -> bool {
        self.iter().all(|(id, amount)| is_ignored(id) || amount < MIN_AMOUNT)
    }

    /// Adds every amount of another vector; its scalars become present.
    pub fn add(&mut self, other: &Self) {
        self.cpu += other.cpu;
        self.memory += other.memory;
        for (at, (id, amount)) in other.scalars.iter().enumerate() {
            // Most vectors have the same scalars.
            let beside = self.scalars.get_mut(at).filter(|(own, _)| own == id);
            let place = match beside {
                Some((_, place)) => Some(place),
                None => self.slot(*id),
            };
            if let Some(place) = place {
                *place += amount;
            }
        }
    }

    /// Subtracts every amount of another vector, whether there is enough or not. The scalars of `other` become present;
    /// if this vector has no scalars at all, the scalars of `other` are not subtracted.
    pub fn subtract(&mut self, other: &Self) {
        let with_scalars = self.has_scalars();
        for (id, amount) in other.iter() {
            if (with_scalars || id <= ResourceId::MEMORY)
                && let Some(place) = self.slot(id)
            {
                *place -= amount;
            }
        }
    }

    /// Multiplies every amount.
    pub fn scale(&mut self, factor: f64) {
        self.cpu *= factor;
        self.memory *= factor;
        for (_, amount) in &mut self.scalars {
            *amount *= factor;
        }
    }

    /// True if no amount is above the other vector's, with a tolerance of [`MIN_AMOUNT`] (LE). Missing is 0; what only the
    /// other vector has does not matter.
    pub fn is_at_most(&self, other: &Self) -> bool {
        self.iter().all(|(id, amount)| is_at_most(amount, other.amount(id)))
    }

    /// Requested resources except pods that exceed `limit` in this vector, without a tolerance (the opposite of FIT).
    /// If this vector has no scalars, only cpu and memory are compared.
    pub fn misfits<'a>(&'a self, limit: &'a Self, request: &'a Self) -> impl Iterator<Item = ResourceId> + 'a {
        let with_scalars = self.has_scalars();
        request
            .iter()
            .filter(|&(id, requested)| requested > 0.0 && !is_ignored(id))
            .filter(move |(id, _)| with_scalars || *id <= ResourceId::MEMORY)
            .filter(|(id, _)| self.amount(*id) > limit.amount(*id))
            .map(|(id, _)| id)
    }

    /// True if no requested resource but pods is above `limit`, without a tolerance (FIT).
    pub fn fits(&self, limit: &Self, request: &Self) -> bool {
        self.misfits(limit, request).next().is_none()
    }

    /// True if some requested resource except pods is at most the limit's amount, with a tolerance of [`MIN_AMOUNT`]
    /// (PART). Resources below [`MIN_AMOUNT`] in both vectors are ignored.
    pub fn fits_partly(&self, limit: &Self, request: &Self) -> bool {
        request.iter().any(|(id, requested)| {
            let (own, limit) = (self.amount(id), limit.amount(id));
            let nothing = own < MIN_AMOUNT && limit < MIN_AMOUNT;
            requested > 0.0 && !is_ignored(id) && !nothing && is_at_most(own, limit)
        })
    }

    /// True if some requested resource but pods that is relevant in `limit` is above it, without a tolerance (OVER).
    /// Relevant are cpu and memory of at least [`MIN_AMOUNT`], and every scalar that is present, also with 0.
    pub fn exceeds_partly(&self, limit: &Self, request: &Self) -> bool {
        let relevant = |id: ResourceId| {
            let amount = limit.get(id)?;
            (id > ResourceId::MEMORY || amount >= MIN_AMOUNT).then_some(amount)
        };
        request.iter().any(|(id, requested)| {
            let above = relevant(id).is_some_and(|limit| self.amount(id) > limit);
            requested > 0.0 && !is_ignored(id) && above
        })
    }

    /// Amounts above the amounts of another vector (EXC). A scalar that is not above is missing in the result. As in
    /// the reference, a scalar of -1 is unlimited: in this vector it is unchanged, and in the other vector nothing
    /// exceeds it.
    #[must_use]
    pub fn excess_over(&self, other: &Self) -> Self {
        let mark = f64::from(UNLIMITED_MARK);
        let mut excess = Self::new((self.cpu - other.cpu).max(0.0), (self.memory - other.memory).max(0.0));
        for (id, amount) in self.scalars() {
            let above = amount - other.amount(id);
            if amount == mark {
                excess.scalars.push((id, amount));
            } else if above > 0.0 && other.get(id) != Some(mark) {
                excess.scalars.push((id, above));
            }
        }
        // A name that only the other vector has is above 0 if its amount is negative there.
        for (id, amount) in other.scalars() {
            if amount < 0.0 && amount != mark && self.get(id).is_none() {
                excess.set(id, -amount);
            }
        }
        excess
    }

    /// Larger amount of each resource (MAX). Negative scalars are missing.
    #[must_use]
    pub fn larger_of(&self, other: &Self) -> Self {
        let mut larger = Self::new(self.cpu.max(other.cpu), self.memory.max(other.memory));
        for (id, amount) in self.scalars().chain(other.scalars()) {
            let known = larger.get(id).unwrap_or(0.0);
            if amount >= 0.0 {
                larger.set(id, amount.max(known));
            }
        }
        larger
    }

    /// Lowers amounts to the amounts of a limit (`MIN_INF`). The limit applies to cpu, memory and its own scalars.
    pub fn lower_to_limit(&mut self, limit: &Self) {
        self.cpu = self.cpu.min(limit.cpu);
        self.memory = self.memory.min(limit.memory);
        for (id, amount) in &mut self.scalars {
            if let Some(limit) = limit.get(*id) {
                *amount = amount.min(limit);
            }
        }
    }

    /// Largest ratio of an amount here to the amount in `deserved`, at least 0 (SHARE). For example, 6 of 8 deserved
    /// GPUs is 0.75. Amounts below [`MIN_AMOUNT`] in `deserved` are ignored.
    pub fn share_of(&self, deserved: &Self) -> f64 {
        let parts = deserved.iter().filter(|(_, amount)| *amount >= MIN_AMOUNT);
        parts
            .map(|(id, amount)| self.amount(id) / amount)
            .fold(0.0, |share, part| if part > share { part } else { share })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GPU: ResourceId = ResourceId(7);
    const NIC: ResourceId = ResourceId(8);

    fn vector(cpu: f64, memory: f64, scalars: &[(ResourceId, f64)]) -> ResourceVector {
        let mut vector = ResourceVector::new(cpu, memory);
        for &(id, amount) in scalars {
            vector.set(id, amount);
        }
        vector
    }

    #[test]
    fn at_most_tolerates_less_than_a_tenth_and_knows_only_its_own_names() {
        let limit = vector(1.0, 0.0, &[(NIC, -5.0)]);
        assert!(vector(1.09, 0.0, &[]).is_at_most(&limit));
        assert!(!vector(1.2, 0.0, &[]).is_at_most(&limit));
        assert!(!vector(0.0, 0.0, &[(GPU, 0.2)]).is_at_most(&limit), "missing is 0");
        assert!(vector(0.0, 0.0, &[(GPU, 0.05)]).is_at_most(&limit));
        assert!(
            !vector(0.0, 0.0, &[(ResourceId::PODS, 1.0)]).is_at_most(&limit),
            "pods count"
        );
    }

    #[test]
    fn a_fit_has_no_tolerance_and_asks_for_requested_names_only() {
        let request = vector(1.0, 0.0, &[(ResourceId::PODS, 1.0), (GPU, 2.0)]);
        let own = vector(10.0, 99.0, &[(ResourceId::PODS, 9.0), (GPU, 2.0)]);
        assert!(own.fits(&vector(10.0, 0.0, &[(GPU, 2.0)]), &request));
        assert!(!own.fits(&vector(9.99, 0.0, &[(GPU, 2.0)]), &request));
        let short = vector(9.0, 0.0, &[]);
        assert_eq!(
            own.misfits(&short, &request).collect::<Vec<_>>(),
            [ResourceId::CPU, GPU]
        );
        assert!(
            vector(10.0, 0.0, &[]).fits(&vector(10.0, 0.0, &[(GPU, -1.0)]), &request),
            "without scalars"
        );
        assert!(!vector(10.0, 0.0, &[(NIC, 0.0)]).fits(&vector(10.0, 0.0, &[(GPU, -1.0)]), &request));
        let negative = vector(-1.0, 0.0, &[]);
        assert!(own.fits(&vector(0.0, 0.0, &[]), &negative), "nothing is requested");
    }

    #[test]
    fn a_partial_fit_needs_one_name_with_an_amount() {
        let request = vector(1.0, 1.0, &[(ResourceId::PODS, 1.0), (GPU, 1.0)]);
        let own = vector(5.0, 5.0, &[(ResourceId::PODS, 0.0), (GPU, 0.0)]);
        assert!(
            !own.fits_partly(&vector(4.0, 4.8, &[(ResourceId::PODS, 9.0)]), &request),
            "0 and 0, and pods"
        );
        assert!(own.fits_partly(&vector(4.0, 4.95, &[]), &request));
        assert!(own.fits_partly(&vector(0.0, 0.0, &[(GPU, 0.1)]), &request));
    }

    #[test]
    fn a_scalar_of_zero_is_relevant_and_a_cpu_of_zero_is_not() {
        let request = vector(1.0, 0.0, &[(ResourceId::PODS, 1.0), (GPU, 1.0)]);
        let own = vector(5.0, 5.0, &[(ResourceId::PODS, 5.0), (GPU, 1.0)]);
        assert!(!own.exceeds_partly(&vector(0.0, 0.0, &[]), &request));
        assert!(own.exceeds_partly(&vector(0.1, 0.0, &[]), &request));
        assert!(own.exceeds_partly(&vector(0.0, 0.0, &[(GPU, 0.0)]), &request));
        assert!(!own.exceeds_partly(&vector(0.0, 1.0, &[(ResourceId::PODS, 0.0)]), &request));
    }

    #[test]
    fn empty_ignores_pods_and_names_do_not() {
        let pods = vector(0.09, 0.0, &[(ResourceId::PODS, 3.0), (GPU, 0.0)]);
        assert!(pods.is_empty());
        assert!(!vector(0.0, 0.0, &[(GPU, 0.1)]).is_empty());
        assert_eq!(pods.named_resources().collect::<Vec<_>>(), [ResourceId::PODS]);
    }

    #[test]
    fn an_excess_leaves_zero_scalars_out() {
        let total = vector(5.0, 1.0, &[(GPU, 2.0), (NIC, 3.0)]);
        let excess = total.excess_over(&vector(6.0, 0.5, &[(GPU, 2.0), (NIC, 1.0), (ResourceId(9), -2.0)]));
        assert_eq!(excess, vector(0.0, 0.5, &[(NIC, 2.0), (ResourceId(9), 2.0)]));
    }

    #[test]
    fn a_scalar_of_minus_one_is_unlimited_where_amounts_are_subtracted() {
        let mark = f64::from(UNLIMITED_MARK);
        let own = vector(-1.0, 5.0, &[(GPU, mark), (NIC, 3.0)]);
        let other = vector(-3.0, -1.0, &[(NIC, mark), (ResourceId(9), mark)]);
        assert_eq!(
            own.excess_over(&other),
            vector(2.0, 6.0, &[(GPU, mark)]),
            "cpu and memory are no scalars"
        );
    }

    #[test]
    fn larger_and_lower_amounts() {
        let own = vector(1.0, 5.0, &[(GPU, 1.0), (NIC, -1.0)]);
        let other = vector(2.0, 4.0, &[(GPU, 0.5), (ResourceId(9), 0.0)]);
        assert_eq!(
            own.larger_of(&other),
            vector(2.0, 5.0, &[(GPU, 1.0), (ResourceId(9), 0.0)])
        );
        let mut limited = own;
        limited.lower_to_limit(&other);
        assert_eq!(limited, vector(1.0, 4.0, &[(GPU, 0.5), (NIC, -1.0)]));
    }

    #[test]
    fn subtraction_skips_scalars_where_there_are_none() {
        let taken = vector(1.0, 1.0, &[(GPU, 1.0)]);
        let (mut bare, mut with) = (vector(2.0, 2.0, &[]), vector(2.0, 2.0, &[(NIC, 1.0)]));
        bare.subtract(&taken);
        with.subtract(&taken);
        assert_eq!(bare, vector(1.0, 1.0, &[]));
        assert_eq!(with, vector(1.0, 1.0, &[(GPU, -1.0), (NIC, 1.0)]));
    }

    #[test]
    fn a_share_counts_what_is_deserved() {
        let own = vector(1.0, 3.0, &[(ResourceId::PODS, 2.0), (GPU, 9.0)]);
        assert!((own.share_of(&vector(4.0, 6.0, &[])) - 0.5).abs() < f64::EPSILON);
        assert!((own.share_of(&vector(4.0, 6.0, &[(ResourceId::PODS, 1.0)])) - 2.0).abs() < f64::EPSILON);
        assert!(vector(-1.0, 0.0, &[]).share_of(&vector(1.0, 0.05, &[])).abs() < f64::EPSILON);
    }

    #[test]
    fn amounts_beyond_64_bits_stay_exact() {
        let mut amounts = ResourceAmounts::from_iter([(ResourceId::CPU, 1_500)]);
        amounts.set_whole_units(GPU, 1_000_000_000_000_000_000);
        assert_eq!(ResourceVector::from(&amounts), vector(1_500.0, 0.0, &[(GPU, 1e21)]));
    }
}
