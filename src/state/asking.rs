//! Questions that change their session: one more numbered change, whose answer is remembered for a retry.

use std::any::Any;
use std::sync::Arc;

use super::State;
use super::error::StateError;
use super::session::Stepped;
use super::sessions::{Inner, Recorded, Sessions};
use crate::engine::PolicyInForce;
use crate::engine::cycle::{Change, Outcome};
use crate::engine::derived::DerivedSet;
use crate::engine::model::{Problem, View};

impl Sessions {
    /// Applies changes and then a question that changes the session itself: one more change, numbered after them.
    fn ask<T: Any + Send + Sync>(
        &self,
        name: &str,
        after: u64,
        changes: &[Change],
        question: impl FnOnce(&View, &PolicyInForce, &mut DerivedSet) -> Result<T, Problem>,
    ) -> Result<(Stepped, Arc<T>), StateError> {
        let busy = self.find(name)?;
        let session = Arc::clone(&busy.0);
        let _changing = session.lock()?;
        let inner = session.inner.load_full();
        let applied = inner.applied;
        let last = after.saturating_add(changes.len() as u64).saturating_add(1);
        if after > applied {
            return Err(StateError::SequenceGap { applied, after });
        }
        if last == applied
            && let Some(answer) = inner.recorded.clone().and_then(|answer| answer.downcast::<T>().ok())
        {
            return Ok((Stepped::at(&inner, busy, Outcome::default(), true), answer));
        }
        if last <= applied {
            return Err(StateError::SequenceMismatch { applied, wanted: last });
        }
        self.check_changes(&session, last)?;
        let (mut cycle, outcome, repeated) = self.cycle_after(&session, &inner, after, changes)?;
        let answer = cycle
            .ask(|view, derived| question(view, &session.policy, derived))
            .map_err(|problem| StateError::ChangeRefused { problem, applied })?;
        let answer = Arc::new(answer);
        let next = Arc::new(Inner {
            recorded: Some(Arc::clone(&answer) as Recorded),
            cycle,
            applied: last,
        });
        session.inner.store(Arc::clone(&next));
        Ok((Stepped::at(&next, busy, outcome, repeated), answer))
    }
}

impl State {
    /// A session after these changes and a question that changes it, too: one more change, numbered after them. Asked
    /// again, the recorded answer comes back.
    ///
    /// # Errors
    /// As [`Self::step`]; or the question cannot be answered, and nothing was applied.
    pub fn ask<T: Any + Send + Sync>(
        &self,
        session: &str,
        after: u64,
        changes: &[Change],
        question: impl FnOnce(&View, &PolicyInForce, &mut DerivedSet) -> Result<T, Problem>,
    ) -> Result<(Stepped, Arc<T>), StateError> {
        self.sessions.ask(session, after, changes, question)
    }
}
