//! Memory of values in bytes, derived from their fields: a container counts its own blocks and what its items hold.

use std::collections::BTreeMap;
use std::sync::Arc;

use smallvec::{Array, SmallVec};

use crate::model::NodeMask;

/// Bytes of the reference counts before shared content.
pub(crate) const COUNT_BYTES: usize = 2 * size_of::<usize>();
/// Bytes to which allocators round small blocks.
const BLOCK_BYTES: usize = 16;
/// Entries for which a block of a map has space.
const MAP_ITEMS: usize = 11;

/// Memory of a value.
pub trait HeldMemory {
    /// True if unrelated owners share the value behind an `Arc`, for example a text: each counts its part. False: an
    /// owner counts an `Arc` whole, unless the older owner has the same one.
    const IS_INTERNED: bool = false;

    /// Bytes that the value holds beyond its own size and that an older value of the same history does not share.
    fn held_bytes(&self, older: Option<&Self>) -> usize;
}

/// One owner's part of the bytes of shared content. The parts of all owners sum to the bytes.
pub(crate) fn held_share<T: ?Sized>(content: &Arc<T>, bytes: usize) -> usize {
    (bytes + COUNT_BYTES).next_multiple_of(BLOCK_BYTES) / Arc::strong_count(content).max(1)
}

/// Implements [`HeldMemory`] by the fields of a struct. The compiler rejects a list without one of the fields. Fields after
/// the semicolon hold nothing beyond their own size, or another owner counts it.
macro_rules! held_bytes {
    (plain $($type:ty),+) => {
        $(impl $crate::held_bytes::HeldMemory for $type {
            fn held_bytes(&self, _: Option<&Self>) -> usize {
                0
            }
        })+
    };
    (interned $type:ty { $($fields:tt)* }) => {
        held_bytes!(@ true, $type { $($fields)* });
    };
    (@ $interned:literal, $type:ty { $($field:tt),* $(; $($other:tt),*)? }) => {
        impl $crate::held_bytes::HeldMemory for $type {
            const IS_INTERNED: bool = $interned;

            fn held_bytes(&self, older: Option<&Self>) -> usize {
                let Self { $($field: _,)* $($($other: _,)*)? } = self;
                0 $(+ $crate::held_bytes::HeldMemory::held_bytes(&self.$field, older.map(|older| &older.$field)))*
            }
        }
    };
    ($type:ty { $($fields:tt)* }) => {
        held_bytes!(@ false, $type { $($fields)* });
    };
}
pub(crate) use held_bytes;

held_bytes!(plain(), bool, u8, u32, u64, usize, i32, i64, i128, f64, NodeMask);

impl HeldMemory for str {
    const IS_INTERNED: bool = true;

    fn held_bytes(&self, _: Option<&Self>) -> usize {
        0
    }
}

impl HeldMemory for String {
    fn held_bytes(&self, _: Option<&Self>) -> usize {
        self.capacity()
    }
}

impl<T: HeldMemory + ?Sized> HeldMemory for Arc<T> {
    const IS_INTERNED: bool = T::IS_INTERNED;

    fn held_bytes(&self, older: Option<&Self>) -> usize {
        if size_of_val(&**self) == 0 || older.is_some_and(|older| Arc::ptr_eq(older, self)) {
            return 0;
        }
        if T::IS_INTERNED {
            return held_share(self, size_of_val(&**self) + T::held_bytes(self, None));
        }
        COUNT_BYTES + size_of_val(&**self) + T::held_bytes(self, older.map(|older| &**older))
    }
}

impl<T: HeldMemory> HeldMemory for Box<T> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        size_of::<T>().next_multiple_of(BLOCK_BYTES) + T::held_bytes(self, older.map(|older| &**older))
    }
}

impl<T: HeldMemory> HeldMemory for Option<T> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        let older = older.and_then(Option::as_ref);
        self.as_ref().map_or(0, |own| own.held_bytes(older))
    }
}

impl<T: HeldMemory, E: HeldMemory> HeldMemory for Result<T, E> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        match self {
            Ok(own) => own.held_bytes(older.and_then(|older| older.as_ref().ok())),
            Err(own) => own.held_bytes(None),
        }
    }
}

impl<A: HeldMemory, B: HeldMemory> HeldMemory for (A, B) {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        self.0.held_bytes(older.map(|older| &older.0)) + self.1.held_bytes(older.map(|older| &older.1))
    }
}

impl<A: HeldMemory, B: HeldMemory, C: HeldMemory> HeldMemory for (A, B, C) {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        self.0.held_bytes(older.map(|older| &older.0))
            + self.1.held_bytes(older.map(|older| &older.1))
            + self.2.held_bytes(older.map(|older| &older.2))
    }
}

/// Lists are compared item by item: an item that moved counts as a new one.
impl<T: HeldMemory> HeldMemory for [T] {
    const IS_INTERNED: bool = true;

    fn held_bytes(&self, older: Option<&Self>) -> usize {
        let items = self.iter().enumerate();
        items
            .map(|(at, item)| item.held_bytes(older.and_then(|older| older.get(at))))
            .sum()
    }
}

impl<T: HeldMemory, const LEN: usize> HeldMemory for [T; LEN] {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        self.as_slice().held_bytes(older.map(<[T; LEN]>::as_slice))
    }
}

impl<T: HeldMemory> HeldMemory for Vec<T> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        self.capacity() * size_of::<T>() + self.as_slice().held_bytes(older.map(Vec::as_slice))
    }
}

/// Records share their lists of amounts.
impl<A: Array<Item: HeldMemory>> HeldMemory for SmallVec<A> {
    const IS_INTERNED: bool = true;

    fn held_bytes(&self, older: Option<&Self>) -> usize {
        let block = if self.spilled() { self.capacity() } else { 0 };
        block * size_of::<A::Item>() + self.as_slice().held_bytes(older.map(SmallVec::as_slice))
    }
}

/// Blocks of large maps are filled to about two thirds.
impl<K: HeldMemory + Ord, V: HeldMemory> HeldMemory for BTreeMap<K, V> {
    fn held_bytes(&self, older: Option<&Self>) -> usize {
        let blocks = match self.len() {
            0 => 0,
            items => COUNT_BYTES + (items * 3 / 2).max(MAP_ITEMS) * size_of::<(K, V)>(),
        };
        let items = self.iter().map(|(key, own)| {
            let older = older.and_then(|older| older.get_key_value(key));
            key.held_bytes(older.map(|(key, _)| key)) + own.held_bytes(older.map(|(_, own)| own))
        });
        blocks + items.sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Default)]
    struct Account {
        share: f64,
        sums: Arc<Vec<u64>>,
        names: BTreeMap<Arc<str>, u32>,
    }

    held_bytes! { Account { sums, names; share } }

    #[test]
    fn what_the_older_value_has_counts_once() {
        let older = Account {
            share: 1.0,
            sums: Arc::new(vec![0; 100]),
            names: [("queue".into(), 1)].into(),
        };
        let sums = COUNT_BYTES + size_of::<Vec<u64>>() + 800;
        let names = COUNT_BYTES + MAP_ITEMS * size_of::<(Arc<str>, u32)>();
        assert_eq!(older.held_bytes(None), sums + names + 32);
        let mut newer = older.clone();
        assert_eq!(newer.held_bytes(Some(&older)), names, "maps copy their blocks");
        Arc::make_mut(&mut newer.sums)[0] = 1;
        assert_eq!(newer.held_bytes(Some(&older)), sums + names);
        assert!(newer.share.total_cmp(&older.share).is_eq());
    }

    #[test]
    fn owners_of_a_text_count_their_part() {
        let text: Arc<str> = "x".repeat(992).into();
        assert_eq!(text.held_bytes(None), 1_008);
        let owners = vec![text; 4];
        assert_eq!(owners.held_bytes(None), 4 * size_of::<Arc<str>>() + 1_008);
    }
}
