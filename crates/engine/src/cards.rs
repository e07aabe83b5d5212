//! The cards of a node, from its labels and its raw allocatable. Card quotas apply to them.

use std::collections::BTreeMap;
use std::num::IntErrorKind;
use std::sync::Arc;

use crate::held_bytes::held_bytes;
use crate::model::{NodeRecord, ResourceId, ResourceTable, TextMap, find_text};
use crate::policy::Compatibility;

/// Annotation of tasks: the card that they use, or several joined by `|`.
pub const CARD_NAME_ANNOTATION: &str = "volcano.sh/card.name";

/// NVIDIA's resource of cards shared by MPS.
const SHARED: &str = "nvidia.com/gpu.shared";
/// Label: by how many an MPS card is shared.
const REPLICAS: &str = "nvidia.com/gpu.replicas";
/// NVIDIA's resources of MIG slices begin so.
const MIG: &str = "nvidia.com/mig-";

const PRODUCT: &str = ".product";

/// Last parts of the labels beside that of the product: how many cards there are, and their memory.
const SIBLINGS: [&str; 2] = ["count", "memory"];

/// Cards of one kind on one node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CardOnNode {
    /// Whole cards, allocatable; above 0.
    pub cards: i64,
    /// Resource that pods request for the card, such as `nvidia.com/gpu`.
    pub resource: ResourceId,
}

held_bytes! { plain CardOnNode }

/// Properties of the cards of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeCards {
    /// Name of the whole card; empty: no usable label.
    pub product: Arc<str>,
    /// Number of cards in the label, for example 8. 0: absent or unreadable.
    pub count: i64,
    /// Memory of a card in MiB, for example 81920. 0: absent or unreadable.
    pub memory_mb: i64,
    /// Prefix of the resources of whole cards; empty: no usable label.
    pub prefix: Arc<str>,
    /// Prefix of the product's labels, which is the name of its resource where labels and resources agree.
    label_stem: Arc<str>,
    /// By card name.
    pub cards: BTreeMap<Arc<str>, CardOnNode>,
    /// Labels and resources that are malformed or ambiguous, and what became of them.
    pub diagnostics: Vec<String>,
}

held_bytes! { NodeCards { product, prefix, label_stem, cards, diagnostics; count, memory_mb } }

impl NodeCards {
    /// The cards of a node whose resources are named by `resources`.
    pub fn of(node: &NodeRecord, resources: &ResourceTable, compatibility: Compatibility) -> Self {
        let mut found = Self::default();
        found.read_labels(&node.labels, compatibility);
        let mut given: Vec<(&Arc<str>, ResourceId, i64)> = node
            .allocatable
            .iter()
            .filter(|(id, _)| is_card_amount(*id))
            .filter_map(|(id, milli)| Some((resources.shared_name(id)?, id, whole_units(milli))))
            .filter(|(_, _, cards)| *cards > 0)
            .collect();
        given.sort_unstable();
        for (name, resource, cards) in &given {
            let card = if ***name == *SHARED {
                found.mps_card_name(&node.labels, compatibility)
            } else if let Some(profile) = name.strip_prefix(MIG) {
                found.mig_card_name(profile, compatibility)
            } else {
                None
            };
            if let Some(card) = card {
                found.insert_card(card, *resource, *cards);
            }
        }
        found.add_whole_card(&given, compatibility);
        found
    }

    fn insert_card(&mut self, card: Arc<str>, resource: ResourceId, cards: i64) {
        self.cards.insert(card, CardOnNode { cards, resource });
    }

    /// Finds the product. Several: the first by name of the label.
    fn read_labels(&mut self, labels: &TextMap, compatibility: Compatibility) {
        for (key, product) in labels.iter() {
            let Some((prefix, stem)) = product_label(key, compatibility) else {
                continue;
            };
            let sibling = |name: &str| find_text(labels, &format!("{stem}.{name}")).filter(|text| !text.is_empty());
            let [count, memory] = SIBLINGS.map(sibling);
            match compatibility {
                Compatibility::Upstream(_) if count.is_none() || memory.is_none() => {
                    self.diagnostics.push(format!(
                        "label `{key}` has no effect: `{stem}.count` or `{stem}.memory` is missing or empty"
                    ));
                    continue;
                }
                Compatibility::Corrected if product.trim().is_empty() => {
                    self.diagnostics
                        .push(format!("label `{key}` is empty and has no effect"));
                    continue;
                }
                Compatibility::Upstream(_) | Compatibility::Corrected => {}
            }
            if !self.prefix.is_empty() {
                let message = format!(
                    "label `{key}` has no effect: another label names the product `{}`",
                    self.product
                );
                self.diagnostics.push(message);
                continue;
            }
            self.product = Arc::clone(product);
            self.prefix = Arc::from(prefix);
            self.label_stem = Arc::from(stem);
            self.count = self.read_number(&format!("{stem}.count"), count);
            self.memory_mb = self.read_number(&format!("{stem}.memory"), memory);
        }
    }

    /// Reads a whole number. An unreadable number is 0; a number out of range is the nearest representable number.
    fn read_number(&mut self, label: &str, text: Option<&str>) -> i64 {
        let Some(text) = text else { return 0 };
        let number = match text.parse::<i64>() {
            Ok(number) => return number,
            Err(error) if *error.kind() == IntErrorKind::PosOverflow => i64::MAX,
            Err(error) if *error.kind() == IntErrorKind::NegOverflow => i64::MIN,
            Err(_) => 0,
        };
        self.diagnostics
            .push(format!("label `{label}`: `{text}` is no whole number; {number} counts"));
        number
    }

    /// The name of cards shared by MPS.
    fn mps_card_name(&mut self, labels: &TextMap, compatibility: Compatibility) -> Option<Arc<str>> {
        let replicas = find_text(labels, REPLICAS).unwrap_or_default();
        let Some(replicas) = replicas.parse::<i64>().ok().filter(|replicas| *replicas > 0) else {
            self.diagnostics.push(format!(
                "`{SHARED}` is no card: label `{REPLICAS}` is `{replicas}`, not a whole number above 0"
            ));
            return None;
        };
        if compatibility == Compatibility::Corrected && (self.product.is_empty() || self.memory_mb <= 0) {
            self.diagnostics.push(format!(
                "`{SHARED}` is no card: no label names the product and its memory in MiB"
            ));
            return None;
        }
        // Half a GiB is rounded away from zero, as upstream does it in floats.
        let gib = (self.memory_mb as f64 / 1024.0).round();
        Some(Arc::from(format!("{}/mps-{gib:.0}g*1/{replicas}", self.product)))
    }

    /// The name of MIG slices.
    fn mig_card_name(&mut self, profile: &str, compatibility: Compatibility) -> Option<Arc<str>> {
        if compatibility == Compatibility::Corrected && (self.product.is_empty() || profile.is_empty()) {
            self.diagnostics
                .push(format!("`{MIG}{profile}` is no card: no label names the product"));
            return None;
        }
        Some(Arc::from(format!("{}/mig-{profile}-mixed", self.product)))
    }

    /// The whole cards. Several resources: the label's own (`corrected` only), else the first by name.
    fn add_whole_card(&mut self, given: &[(&Arc<str>, ResourceId, i64)], compatibility: Compatibility) {
        if self.prefix.is_empty() {
            return;
        }
        let fitting: Vec<_> = given
            .iter()
            .filter(|(name, _, _)| {
                ***name != *SHARED && !name.starts_with(MIG) && is_vendor_resource(name, &self.prefix, compatibility)
            })
            .collect();
        let own = match compatibility {
            Compatibility::Upstream(_) => None,
            Compatibility::Corrected => fitting.iter().find(|(name, _, _)| ***name == *self.label_stem),
        };
        let Some(&&(chosen, resource, cards)) = own.or(fitting.first()) else {
            return;
        };
        for (other, _, _) in fitting.iter().filter(|(name, _, _)| *name != chosen) {
            self.diagnostics.push(format!(
                "`{other}` is no card: `{chosen}` stands for `{}`, and a node has one kind of whole card",
                self.product
            ));
        }
        self.insert_card(Arc::clone(&self.product), resource, cards);
    }
}

/// True if the cards of a node depend on a label with this key.
pub(crate) fn is_card_label(key: &str) -> bool {
    key == REPLICAS || key.ends_with(PRODUCT) || key.rsplit_once('.').is_some_and(|(_, last)| SIBLINGS.contains(&last))
}

/// True if the cards of a node depend on its amount of this resource.
pub(crate) fn is_card_amount(id: ResourceId) -> bool {
    !matches!(id, ResourceId::CPU | ResourceId::MEMORY | ResourceId::PODS)
}

/// Thousandths rounded up to whole ones.
pub(crate) fn whole_units(milli: i64) -> i64 {
    milli.div_euclid(1000) + i64::from(milli.rem_euclid(1000) > 0)
}

/// Does a resource belong to this vendor?
fn is_vendor_resource(name: &str, prefix: &str, compatibility: Compatibility) -> bool {
    match (name.strip_prefix(prefix), compatibility) {
        (Some(_), Compatibility::Upstream(_)) => true,
        (Some(rest), Compatibility::Corrected) => rest.starts_with('/'),
        (None, _) => false,
    }
}

/// Of `<prefix>/<type>.product`: the prefix, and everything before `.product`.
fn product_label(key: &str, compatibility: Compatibility) -> Option<(&str, &str)> {
    let stem = key.strip_suffix(PRODUCT)?;
    if key.contains(MIG) {
        return None;
    }
    let (prefix, kind) = stem.rsplit_once('/')?;
    let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let known = match compatibility {
        Compatibility::Upstream(_) => kind.chars().all(word),
        Compatibility::Corrected => kind.chars().all(|c| word(c) || matches!(c, '-' | '.')),
    };
    (!prefix.is_empty() && !prefix.contains('\n') && !kind.is_empty() && known).then_some((prefix, stem))
}
