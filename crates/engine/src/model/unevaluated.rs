//! Names of fields that a sender read in an object and that no field of its record carries.

use crate::held_bytes::held_bytes;
use std::sync::Arc;

/// Names of unevaluated fields, sorted, each once. Without names it takes one word and no memory beside that.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnevaluatedFields(Option<Arc<Vec<Arc<str>>>>);

held_bytes! { UnevaluatedFields { 0 } }

impl UnevaluatedFields {
    /// True if the list has no names.
    pub fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    /// The names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<str>> {
        self.0.iter().flat_map(|names| names.iter())
    }

    /// Shared storage of the names, for an interner. `None`: the list is empty.
    pub fn shared_mut(&mut self) -> Option<&mut Arc<Vec<Arc<str>>>> {
        self.0.as_mut()
    }
}

impl FromIterator<Arc<str>> for UnevaluatedFields {
    /// Drops empty and repeated names.
    fn from_iter<I: IntoIterator<Item = Arc<str>>>(names: I) -> Self {
        let mut names: Vec<Arc<str>> = names.into_iter().filter(|name| !name.is_empty()).collect();
        names.sort_unstable();
        names.dedup();
        Self((!names.is_empty()).then(|| Arc::new(names)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_unique() {
        let fields = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<UnevaluatedFields>();
        let sorted = fields(&["volumes", "", "nodeSelector", "volumes"]);
        assert_eq!(
            sorted.iter().map(|name| &**name).collect::<Vec<_>>(),
            ["nodeSelector", "volumes"]
        );
        assert_eq!(sorted, fields(&["nodeSelector", "volumes"]));
        assert!(fields(&[""]).is_empty());
        assert_eq!(fields(&[]), UnevaluatedFields::default());
    }

    #[test]
    fn an_empty_list_takes_one_word() {
        assert_eq!(size_of::<UnevaluatedFields>(), size_of::<usize>());
    }
}
