//! Amounts: Kubernetes quantities to the engine's integers, and back.

use std::sync::Arc;

use crate::server::pb;
use pumice_engine::model::negative_amounts::NEGATIVE_REMEDY;
use pumice_engine::model::quantity::Quantity;
use pumice_engine::model::resource_name::{
    AmountError, AmountUnit, ResourceKind, amount, amount_in, format_amount, signed_amount,
};
use pumice_engine::model::{
    ErrorCode, ExactQuantities, ResourceAmounts, ResourceId, ResourceNaming, ResourceTable, ResourceTotals,
    TooManyResourcesError,
};

use super::reader::{ResourceInterner, WireReader};

/// Field of a job with the least that it needs.
pub(super) const MIN_RESOURCES: &str = "min_resources";

/// Names of a cluster state, and names that one request adds for itself: a request must not fill the state's table.
#[derive(Debug)]
pub(crate) struct QueryResourceNames {
    table: Arc<ResourceTable>,
    limit: usize,
}

impl QueryResourceNames {
    /// Starts from the names of a cluster state, and accepts `more` new ones.
    pub(crate) fn new(table: &Arc<ResourceTable>, more: usize) -> Self {
        Self {
            limit: table.len() + more,
            table: Arc::clone(table),
        }
    }

    /// Table of all names, including the added ones.
    pub(crate) fn into_table(self) -> Arc<ResourceTable> {
        self.table
    }
}

impl ResourceInterner for QueryResourceNames {
    fn lookup(&self, name: &str) -> Option<ResourceId> {
        self.table.get(name)
    }

    fn intern(&mut self, name: &str, _: ResourceNaming) -> Result<ResourceId, TooManyResourcesError> {
        let limit = self.limit;
        Arc::make_mut(&mut self.table).intern(name, limit)
    }

    fn others(&mut self) -> Option<ResourceId> {
        None
    }
}

impl WireReader<'_> {
    /// Reads a list of amounts. Names that schedulers ignore are dropped with a warning.
    pub(super) fn amounts(&mut self, field: &'static str, list: pb::ResourceList) -> ResourceAmounts {
        self.amounts_of_sign(field, list, AmountSign::NotNegative)
    }

    /// Reads a list of amounts of a queue or a job, which may be absent. Negative ones count where a policy under
    /// `upstream` judges. Only Volcano's plugins read such lists, so what Volcano does not count is dropped, with a warning
    /// unless its controllers write the name into every job.
    pub(super) fn signed_amounts(
        &mut self,
        field: &'static str,
        list: Option<pb::ResourceList>,
    ) -> Option<ResourceAmounts> {
        let sign = if self.keeps_negative {
            AmountSign::Any
        } else {
            AmountSign::RefusedByCorrected
        };
        list.map(|list| self.amounts_of_sign(field, list, sign))
    }

    /// Reads the limit of a queue, which may be absent. Plugins of quotas compare no pods.
    pub(super) fn capability(&mut self, list: Option<pb::ResourceList>) -> Option<ResourceAmounts> {
        let amounts = self.signed_amounts("capability", list);
        if amounts
            .as_ref()
            .is_some_and(|amounts| amounts.get(ResourceId::PODS).is_some())
        {
            let message = "no plugin limits the pods of a queue: for a limit use a ResourceQuota of the namespace";
            self.warning(
                ErrorCode::ResourceIgnored,
                "capability.items[pods]".to_owned(),
                message.to_owned(),
            );
        }
        amounts
    }

    fn amounts_of_sign(&mut self, field: &'static str, list: pb::ResourceList, sign: AmountSign) -> ResourceAmounts {
        let pb::ResourceList { items } = list;
        let limit = self.options.limits.list_resources;
        if items.len() > limit && self.others().is_none() {
            let message = format!("{} resources; limit `list_resources` is {limit}", items.len());
            self.problem(ErrorCode::LimitExceeded, field.to_owned(), message);
            return ResourceAmounts::default();
        }
        let mut amounts = ResourceAmounts::default();
        for (number, (name, text)) in items.iter().enumerate() {
            self.is_list_full = number >= limit;
            match self.amount(field, name, text, sign) {
                // Several names may share an id.
                Some((id, CountedAmount::EngineUnits(amount))) => {
                    let before = amounts.get(id).unwrap_or_default();
                    amounts.set(id, amount.saturating_add(before));
                }
                Some((id, CountedAmount::WholeUnits(whole))) => amounts.set_whole_units(id, whole),
                None => {}
            }
        }
        amounts
    }

    /// Id that names share for which there is no place. `None`: such a name is refused, as in what operators write.
    fn others(&mut self) -> Option<ResourceId> {
        match self.named_by {
            ResourceNaming::Asked => self.resource_names.others(),
            ResourceNaming::Offered => None,
        }
    }

    /// Id of a name; in a list that is full a new name has no place.
    fn resource_id(
        &mut self,
        field: &'static str,
        name: &str,
        known: Option<ResourceId>,
    ) -> Result<ResourceId, TooManyResourcesError> {
        if let Some(id) = known.filter(|_| self.named_by == ResourceNaming::Asked) {
            return Ok(id);
        }
        let others = if self.is_list_full { self.others() } else { None };
        let interned = match others {
            Some(id) => Ok(id),
            None => self.resource_names.intern(name, self.named_by),
        };
        let shared = match interned {
            Ok(_) => others,
            Err(_) => self.others(),
        };
        let Some(id) = shared else { return interned };
        self.has_others = true;
        let others = ResourceTable::OTHERS;
        let message = format!("there is no place for the name; it counts as `{others}`, which no node has");
        self.warning(ErrorCode::LimitExceeded, format!("{field}.items[{name}]"), message);
        Ok(id)
    }

    /// Reads exact amounts of any name, with any sign.
    pub(super) fn exact_amounts(&mut self, field: &'static str, list: pb::ResourceList) -> ExactQuantities {
        let limit = self.options.limits.list_resources;
        if list.items.len() > limit {
            let message = format!("{} resources; limit `list_resources` is {limit}", list.items.len());
            self.problem(ErrorCode::LimitExceeded, field.to_owned(), message);
            return ExactQuantities::default();
        }
        let mut read = |(name, text): (String, String)| {
            let quantity = Quantity::parse(&text).map_err(|error| {
                self.problem(
                    ErrorCode::QuantityInvalid,
                    format!("{field}.items[{name}]"),
                    error.to_string(),
                );
            });
            Some((self.name(field, name), quantity.ok()?.billionths()))
        };
        list.items.into_iter().filter_map(&mut read).collect()
    }

    /// Amounts of a job's minimum that the list in the engine's units rounds or does not have. Quantities that cannot be read are
    /// left to the reader of that list.
    pub(super) fn exact_minimum(&self, list: &pb::ResourceList) -> ExactQuantities {
        let limits = &self.options.limits;
        let items = list.items.iter().take(limits.list_resources);
        let inexact = items.filter_map(|(name, text)| {
            let quantity = Quantity::parse(text).ok().filter(|_| name.len() <= limits.name_bytes)?;
            let kind = ResourceKind::of(name);
            let unit = match kind.unit() {
                AmountUnit::Milli => quantity.milli().map(Quantity::from_milli),
                AmountUnit::Whole => quantity
                    .value()
                    .map(|whole| Quantity::from_whole(whole, quantity.format())),
            };
            let is_whole = kind.counted_by_volcano() && unit.is_ok_and(|whole| whole.cmp_value(&quantity).is_eq());
            (!is_whole).then(|| (Arc::from(name.as_str()), quantity.billionths()))
        });
        inexact.collect()
    }

    /// Reads a list of amounts that may be absent.
    pub(super) fn optional_amounts(
        &mut self,
        field: &'static str,
        list: Option<pb::ResourceList>,
    ) -> Option<ResourceAmounts> {
        list.map(|list| self.amounts(field, list))
    }

    /// Reads a list in which only cpu and memory have a meaning. Other names are dropped with a warning.
    pub(super) fn cpu_and_memory(
        &mut self,
        field: &'static str,
        list: Option<pb::ResourceList>,
    ) -> Option<ResourceAmounts> {
        let amounts = self.amounts(field, list?);
        let (counted, dropped): (Vec<_>, Vec<_>) = amounts
            .iter()
            .partition(|(id, _)| matches!(*id, ResourceId::CPU | ResourceId::MEMORY));
        if !dropped.is_empty() {
            let message = "only cpu and memory count here; the other resources are dropped";
            self.warning(ErrorCode::ResourceIgnored, field.to_owned(), message.to_owned());
        }
        Some(counted.into_iter().collect())
    }

    fn amount(
        &mut self,
        field: &'static str,
        name: &str,
        text: &str,
        sign: AmountSign,
    ) -> Option<(ResourceId, CountedAmount)> {
        let limit = self.options.limits.name_bytes;
        if name.len() > limit {
            // New names stay in memory until the server ends, and problems repeat them.
            let message = format!("a resource name of {} bytes; limit `name_bytes` is {limit}", name.len());
            self.problem(ErrorCode::NameTooLong, format!("{field}.items"), message);
            return None;
        }
        let known = self.resource_names.lookup(name);
        let place = || format!("{field}.items[{name}]");
        if !sign.counts(name, known.is_some()) {
            if !(field == MIN_RESOURCES && ResourceKind::is_quota_name(name)) {
                let message = format!("`{name}` is not a resource that schedulers count; it is dropped");
                self.warning(ErrorCode::ResourceNotCounted, place(), message);
            }
            return None;
        }
        let quantity = match Quantity::parse(text) {
            Ok(quantity) => quantity,
            Err(error) => {
                self.problem(ErrorCode::QuantityInvalid, place(), error.to_string());
                return None;
            }
        };
        let counted = match count_amount(name, &quantity, sign) {
            Ok(counted) => counted,
            Err(error @ AmountError::Negative { .. }) => {
                let message = format!("{error}; {}", sign.remedy());
                self.problem(ErrorCode::QuantityNegative, place(), message);
                return None;
            }
            Err(error @ AmountError::TooLarge { .. }) => {
                self.problem(ErrorCode::QuantityTooLarge, place(), error.to_string());
                return None;
            }
        };
        let id = match self.resource_id(field, name, known) {
            Ok(id) => id,
            Err(error) => {
                self.problem(ErrorCode::LimitExceeded, place(), error.to_string());
                return None;
            }
        };
        if let CountedAmount::WholeUnits(_) = counted {
            let message = format!(
                "`{text}` of `{name}` is more than Volcano's plugins can count; for them it is {}",
                format_amount(name, i64::MAX.into())
            );
            self.warning(ErrorCode::QuantityTooLarge, place(), message);
        }
        Some((id, counted))
    }
}

/// Amount that was read.
#[derive(Clone, Copy)]
enum CountedAmount {
    /// Integer in which the engine computes: bytes, pods, or thousandths of cpu and other resources.
    EngineUnits(i64),
    /// Amount in whole units: its thousandths do not fit in 64 bits.
    WholeUnits(i64),
}

/// Sign that an amount may have.
#[derive(Clone, Copy)]
enum AmountSign {
    NotNegative,
    /// Negative amount that is only valid for policies under `upstream`.
    RefusedByCorrected,
    Any,
}

impl AmountSign {
    /// True if whoever reads amounts of this sign counts a resource: of nodes and tasks Kubernetes or Volcano, of queues and jobs
    /// Volcano. Tables know no name that nobody counts.
    fn counts(self, name: &str, is_known: bool) -> bool {
        match self {
            Self::NotNegative => is_known || ResourceKind::of(name).counted_by_kubernetes(),
            Self::RefusedByCorrected | Self::Any => ResourceKind::of(name).counted_by_volcano(),
        }
    }

    fn remedy(self) -> &'static str {
        match self {
            Self::NotNegative => "set it to 0 or more, or leave it out",
            Self::RefusedByCorrected => NEGATIVE_REMEDY,
            Self::Any => "write a whole number of the unit: Kubernetes rounds negative fractions wrongly",
        }
    }
}

fn count_amount(name: &str, quantity: &Quantity, sign: AmountSign) -> Result<CountedAmount, AmountError> {
    if quantity.is_negative() && matches!(sign, AmountSign::Any) {
        return signed_amount(name, quantity).map(CountedAmount::EngineUnits);
    }
    let kind = ResourceKind::of(name);
    amount(name, quantity).map(CountedAmount::EngineUnits).or_else(|error| {
        let whole = amount_in(kind.kubernetes_unit(), name, quantity);
        match (&error, whole) {
            (AmountError::TooLarge { .. }, Ok(whole)) if kind.unit() != kind.kubernetes_unit() => {
                Ok(CountedAmount::WholeUnits(whole))
            }
            _ => Err(error),
        }
    })
}

/// Amounts as canonical quantities.
pub(super) fn resource_list(amounts: &ResourceAmounts, resources: &ResourceTable) -> pb::ResourceList {
    let items = amounts.iter().map(|(id, amount)| {
        let name = resources.name(id);
        let exact = amounts.exact(id).unwrap_or(amount.into());
        (name.to_owned(), format_amount(name, exact))
    });
    pb::ResourceList { items: items.collect() }
}

/// Exact amounts as canonical quantities.
pub(super) fn exact_list(amounts: &ExactQuantities) -> pb::ResourceList {
    let items = amounts.iter();
    pb::ResourceList {
        items: items
            .map(|(name, amount)| (name.to_string(), ExactQuantities::text(amount)))
            .collect(),
    }
}

/// Amounts of a result: cpu, memory, then the others by name.
pub(super) fn result_amounts(
    amounts: impl Iterator<Item = (ResourceId, i128)>,
    resources: &ResourceTable,
) -> Vec<pb::Amount> {
    result_float_amounts(amounts.map(|(id, amount)| (id, amount as f64)), resources)
}

/// Amounts of a result that were computed in floating point.
pub(super) fn result_float_amounts(
    amounts: impl Iterator<Item = (ResourceId, f64)>,
    resources: &ResourceTable,
) -> Vec<pb::Amount> {
    let mut amounts: Vec<_> = amounts
        .map(|(id, amount)| {
            let rank = match id {
                ResourceId::CPU => 0,
                ResourceId::MEMORY => 1,
                _ => 2,
            };
            (rank, resources.name(id), amount)
        })
        .collect();
    amounts.sort_by(|a, b| (a.0, a.1).cmp(&(b.0, b.1)));
    let amount = |(_, name, value): (u8, &str, f64)| pb::Amount {
        resource: name.to_owned(),
        value,
    };
    amounts.into_iter().map(amount).collect()
}

pub(super) fn result_totals(totals: &ResourceTotals, resources: &ResourceTable) -> Vec<pb::Amount> {
    result_amounts(totals.iter(), resources)
}
