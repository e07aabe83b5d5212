//! Taints by which reasons are named, in the releases that name them.

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::rejection_kind::RejectionKind;
use crate::model::ClusterState;
use crate::model::constraints::{Taint, Toleration};

/// Number of the reason by the first taint that is named.
const NAMED_TAINTS: u16 = RejectionKind::AddedAffinity as u16 + 1;

/// Key and value of a taint.
type TaintName = [Arc<str>; 2];

/// Names of the taints that are the first that keeps a class away from some node. They are found when a reason is read, or when
/// somebody asks what verdicts depend on: this walks the lists of taints of all chunks.
#[derive(Debug)]
pub(super) struct TaintNames<'a> {
    cluster_state: &'a ClusterState,
    tolerations: &'a [Toleration],
    /// In order. The numbers of reasons follow it.
    found: OnceCell<Vec<TaintName>>,
}

impl<'a> TaintNames<'a> {
    pub(super) fn new(cluster_state: &'a ClusterState, tolerations: &'a [Toleration]) -> Self {
        Self {
            cluster_state,
            tolerations,
            found: OnceCell::new(),
        }
    }

    /// All names, in order.
    pub(super) fn all(&self) -> &[TaintName] {
        self.found.get_or_init(|| {
            let chunks = self.cluster_state.chunks().iter();
            let lists = chunks.flat_map(|chunk| chunk.attributes().taint_lists());
            let first = lists.filter_map(|taints| first_untolerated(taints, self.tolerations));
            let names: BTreeSet<TaintName> = first.map(|taint| [&taint.key, &taint.value].map(Arc::clone)).collect();
            names.into_iter().collect()
        })
    }

    #[cfg(test)]
    pub(super) fn are_found(&self) -> bool {
        self.found.get().is_some()
    }

    /// Number of the reason by which a list of taints rejects; `None`: it does not, or there are more names than numbers.
    pub(super) fn number_of(&self, taints: &[Taint]) -> Option<u16> {
        let taint = first_untolerated(taints, self.tolerations)?;
        let wanted = (&taint.key, &taint.value);
        let place = self
            .all()
            .binary_search_by(|[key, value]| (key, value).cmp(&wanted))
            .ok()?;
        NAMED_TAINTS.checked_add(u16::try_from(place).ok()?)
    }

    /// Taint of the reason of this number; `None`: the reason names none.
    pub(super) fn of_number(&self, number: u16) -> Option<&TaintName> {
        let place = number.checked_sub(NAMED_TAINTS)?;
        self.all().get(usize::from(place))
    }
}

/// First taint that keeps pods with these tolerations away.
pub(super) fn first_untolerated<'t>(taints: &'t [Taint], tolerations: &[Toleration]) -> Option<&'t Taint> {
    taints
        .iter()
        .find(|taint| taint.rejects() && !is_tolerated(taint, tolerations))
}

pub(super) fn is_tolerated(taint: &Taint, tolerations: &[Toleration]) -> bool {
    tolerations.iter().any(|toleration| toleration.tolerates(taint))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::SortedTable;
    use crate::model::constraints::TaintEffect;

    #[test]
    fn names_beyond_the_numbers_have_none() {
        let state = ClusterState::new(Arc::new(SortedTable::default()), 1);
        let name = |number: u32| -> TaintName { [format!("k{number:06}").into(), Arc::default()] };
        let names = TaintNames {
            found: OnceCell::from((0..70_000).map(name).collect::<Vec<_>>()),
            ..TaintNames::new(&state, &[])
        };
        let number = |number: u32| {
            let [key, value] = name(number);
            let effect = TaintEffect::NoSchedule;
            names.number_of(&[Taint { key, value, effect }])
        };
        assert_eq!(number(0), Some(NAMED_TAINTS));
        let last = u32::from(u16::MAX - NAMED_TAINTS);
        assert_eq!(number(last), Some(u16::MAX));
        assert_eq!(names.of_number(u16::MAX), Some(&name(last)));
        assert_eq!((number(last + 1), number(69_999)), (None, None));
        assert_eq!(names.of_number(NAMED_TAINTS - 1), None);
    }
}
