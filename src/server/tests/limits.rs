//! Tables of limits: complete, in order, and true.

use crate::limits::{ServerLimits, limits};

#[test]
fn every_limit_is_listed_once_in_name_order() {
    for wanted in [
        pumice_state::STATE_LIMITS
            .iter()
            .map(|row| row.name)
            .collect::<Vec<_>>(),
        crate::limits::EDGE_LIMITS.iter().map(|row| row.name).collect(),
    ] {
        let fields = wanted.iter().map(|name| name.trim_end_matches("_ms"));
        assert!(fields.is_sorted(), "{wanted:?}");
    }
    let default = ServerLimits::default();
    for limit in limits() {
        let mut changed = ServerLimits::default();
        let value = limit.get(&changed);
        let (least, most) = limit.range().unwrap_or((1, u64::MAX));
        assert!((least..=most).contains(&value), "{}: {value}", limit.name());
        limit.set(&mut changed, least + 12);
        assert_eq!(limit.get(&changed), least + 12, "{}", limit.name());
        assert_ne!(changed, default, "{} changes nothing", limit.name());
    }
}
