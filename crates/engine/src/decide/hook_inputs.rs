//! Inputs of hooks that are not in chunks. Stored verdicts are valid while these inputs are equal.

use crate::plugin::HookNumbers;

/// Inputs of hooks from outside of chunks, hook by hook.
#[derive(Debug, Default, PartialEq)]
pub(super) struct HookInputs(pub(super) Vec<u64>);

impl HookInputs {
    /// Inputs of these hooks, including missing hooks. `None`: a hook reads further inputs.
    pub(super) fn of(hooks: impl Iterator<Item = Option<Option<HookNumbers>>>) -> Option<Self> {
        let mut all = Vec::new();
        for hook in hooks {
            let Some(numbers) = hook else {
                all.push(0);
                continue;
            };
            let numbers = numbers?;
            all.push(numbers.len() as u64 + 1);
            all.extend(numbers);
        }
        Some(Self(all))
    }

    /// True if no hook reads a number from outside.
    pub(super) fn has_no_numbers(&self) -> bool {
        // The length of a hook's numbers, and one more, stands before them.
        self.0.iter().all(|number| *number <= 1)
    }
}
