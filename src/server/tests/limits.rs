//! List of limits: complete, in order, and true.

use crate::limits::{LIMITS, ServerLimits};

#[test]
fn every_limit_is_listed_once_in_name_order() {
    assert!(LIMITS.is_sorted_by(|a, b| a.name < b.name));
    let bounds = ServerLimits::default();
    let fields = format!("{:?}{:?}", bounds.state, bounds.edge).matches(": ").count();
    assert_eq!(LIMITS.len(), fields);
    for row in LIMITS {
        let mut changed = ServerLimits::default();
        let value = (row.get)(&changed);
        let (least, most) = row.range.map_or((1, u64::MAX), |range| (range.least, range.most));
        assert!((least..=most).contains(&value), "{}: {value}", row.name);
        (row.set)(&mut changed, least + 7);
        assert_eq!((row.get)(&changed), least + 7, "{}", row.name);
        assert_ne!(changed, bounds, "{} changes nothing", row.name);
    }
}
