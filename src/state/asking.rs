//! Questions that change their session: one more numbered change, whose answer is remembered for a retry.

use std::any::Any;
use std::sync::Arc;

use super::State;
use super::error::StateError;
use super::session::Stepped;
use super::sessions::{Inner, Recorded, Sessions};
use crate::engine::PolicyInForce;
use crate::engine::cycle::{Change, Cycle, Outcome};
use crate::engine::derived::DerivedSet;
use crate::engine::model::{Problem, View};

impl Sessions {
    /// Applies changes and then a question that changes the session itself: one more change, numbered after them.
    fn ask<T: Any + Send + Sync, E: From<StateError>>(
        &self,
        name: &str,
        after: u64,
        changes: &[Change],
        question: impl FnOnce(&mut Cycle, &PolicyInForce, &mut Outcome) -> Result<T, E>,
    ) -> Result<(Stepped, Arc<T>), E> {
        let busy = self.find(name)?;
        let session = Arc::clone(&busy.0);
        let _changing = session.lock()?;
        let inner = session.inner.load_full();
        let applied = inner.applied;
        let last = after.saturating_add(changes.len() as u64).saturating_add(1);
        if after > applied {
            return Err(StateError::SequenceGap { applied, after }.into());
        }
        if last == applied
            && let Some(answer) = inner.recorded.clone().and_then(|answer| answer.downcast::<T>().ok())
        {
            return Ok((Stepped::at(&inner, busy, Outcome::default(), true), answer));
        }
        if last <= applied {
            return Err(StateError::SequenceMismatch { applied, wanted: last }.into());
        }
        self.check_changes(&session, last)?;
        let (mut cycle, mut outcome, repeated) = self.cycle_after(&session, &inner, after, changes)?;
        let answer = Arc::new(question(&mut cycle, &session.policy, &mut outcome)?);
        let next = Arc::new(Inner {
            recorded: Some(Arc::clone(&answer) as Recorded),
            cycle,
            applied: last,
        });
        self.hold(&session, next.cycle.bytes())?;
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
        let applied = self.applied_through(session).unwrap_or(0);
        self.sessions.ask(session, after, changes, |cycle, policy, _| {
            let asked = cycle.ask(|view, derived| question(view, policy, derived));
            asked.map_err(|problem| StateError::ChangeRefused { problem, applied })
        })
    }

    /// The same for a question that changes the cycle itself, and says in the outcome what it did there. After an error
    /// nothing was applied.
    ///
    /// # Errors
    /// As [`Self::step`], or the question's own.
    pub fn ask_cycle<T: Any + Send + Sync, E: From<StateError>>(
        &self,
        session: &str,
        after: u64,
        changes: &[Change],
        question: impl FnOnce(&mut Cycle, &PolicyInForce, &mut Outcome) -> Result<T, E>,
    ) -> Result<(Stepped, Arc<T>), E> {
        self.sessions.ask(session, after, changes, question)
    }
}
