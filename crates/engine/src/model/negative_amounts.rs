//! Negative amounts of queues and jobs. The reference and policies under `upstream` compute with them. Under
//! `corrected` they are a problem of the record.

use super::{
    JobRecord, Problem, QueueRecord, ResourceAmounts, ResourceId, ResourceTable, resource_name::format_amount,
};
use crate::model::ErrorCode;

/// Remedy for an amount that only policies under `upstream` compute with.
pub const NEGATIVE_REMEDY: &str = "set it to 0 or more, or leave it out; only policies under `compatibility: upstream` count with it, as the reference does";

impl ResourceAmounts {
    /// First resource with a negative amount.
    fn first_negative(&self) -> Option<(ResourceId, i64)> {
        self.iter().find(|(_, amount)| *amount < 0)
    }

    /// Same amounts without the negative ones.
    #[must_use]
    pub fn without_negatives(&self) -> Self {
        if self.first_negative().is_none() {
            return self.clone();
        }
        let mut left = Self::default();
        for (id, amount) in self.iter().filter(|(_, amount)| *amount >= 0) {
            match self.beyond_64_bits(id) {
                Some(whole) => left.set_whole_units(id, whole),
                None => left.set(id, amount),
            }
        }
        left
    }
}

impl QueueRecord {
    /// Problem of the first negative amount; its field begins with `queues[<name>]`.
    pub fn negative_problem(&self, names: &ResourceTable) -> Option<Problem> {
        let fields = [
            ("capability", &self.capability),
            ("deserved", &self.deserved),
            ("guarantee", &self.guarantee),
        ];
        let mut found = fields.into_iter().filter_map(|(field, amounts)| {
            problem(|| format!("queues[{}].{field}", self.name), amounts.as_ref(), names)
        });
        found.next()
    }
}

impl JobRecord {
    /// Problem of the first negative amount; its field begins with `jobs[<name>]`.
    pub fn negative_problem(&self, names: &ResourceTable) -> Option<Problem> {
        let field = || format!("jobs[{}].min_resources", self.name);
        problem(field, self.min_resources.as_ref(), names)
    }
}

/// Problem of the first negative amount. Records without one are the rule, and cost no text.
fn problem(
    field: impl FnOnce() -> String,
    amounts: Option<&ResourceAmounts>,
    names: &ResourceTable,
) -> Option<Problem> {
    let (id, amount) = amounts?.first_negative()?;
    let name = names.name(id);
    let shown = format_amount(name, amount.into());
    let message = format!("`{shown}` of `{name}` is negative; {NEGATIVE_REMEDY}");
    let field = format!("{}.items[{name}]", field());
    Some(Problem::new(ErrorCode::QuantityNegative, field, message))
}
