//! Survey of the candidates by the scorers of a class, and the inputs of scores that follow from it.

use super::candidates::ChunkSlice;
use super::class_scorers::ClassScorers;
use super::hook_inputs::HookInputs;
use super::verdict_cache::ClassReuse;
use crate::model::{NodeChunk, NodeMask, Problem};
use crate::plugin::{HookNumbers, NodeScorer};

impl<'a> ClassScorers<'a> {
    /// Scorers that depend on the candidates.
    fn surveyors(&mut self) -> impl Iterator<Item = &mut Box<dyn NodeScorer + 'a>> {
        let scorers = self.scorers.iter_mut().filter_map(|score| score.scorer.as_mut());
        scorers.filter(|scorer| scorer.needs_survey())
    }

    /// True if the numbers of a survey are all that it takes from candidates. This may change with the state: a pod elsewhere
    /// with a preferred term about the class adds a part that takes more.
    fn survey_by_numbers(&mut self) -> bool {
        self.surveyors().all(|scorer| scorer.outside_inputs().is_some())
    }

    /// Shows the candidates of each slice to the scorers that depend on them.
    ///
    /// # Errors
    /// A plugin cannot score the candidates.
    pub(super) fn survey<'c>(
        &mut self,
        slices: impl Iterator<Item = (&'c NodeChunk, &'c NodeMask)>,
    ) -> Result<(), Problem> {
        for (chunk, candidates) in slices.filter(|(_, candidates)| !candidates.is_empty()) {
            self.surveyors().for_each(|scorer| {
                scorer.survey(chunk, candidates);
            });
        }
        self.finish_survey()
    }

    /// Shows the candidates of slices that pass to the scorers that depend on them, by stored numbers where there are some.
    ///
    /// # Errors
    /// A plugin cannot score the candidates.
    pub(super) fn survey_slices(
        &mut self,
        slices: &[ChunkSlice<'_>],
        passing: &[NodeMask],
        reuse: Option<&mut ClassReuse<'_>>,
    ) -> Result<(), Problem> {
        let Some(reuse) = reuse.filter(|_| self.survey_by_numbers()) else {
            return self.survey(slices.iter().map(|slice| slice.chunk).zip(passing));
        };
        for (slice, candidates) in slices.iter().zip(passing) {
            self.survey_or_reuse(slice, candidates, reuse);
        }
        self.finish_survey()
    }

    /// Shows the candidates of a slice to the scorers that depend on them, or the numbers that these took from it before.
    fn survey_or_reuse(&mut self, slice: &ChunkSlice<'_>, candidates: &NodeMask, reuse: &mut ClassReuse<'_>) {
        let count = self.surveyors().count();
        if let Some(stored) = reuse.surveyed(slice).filter(|stored| stored.len() == count) {
            let scorers = self.surveyors().zip(stored);
            return scorers.for_each(|(scorer, numbers)| scorer.survey_again(numbers));
        }
        let scorers = self.surveyors();
        let numbers: Option<Vec<HookNumbers>> = if candidates.is_empty() {
            Some(scorers.map(|_| HookNumbers::new()).collect())
        } else {
            // Every scorer sees the candidates, also after one without numbers.
            let numbers: Vec<_> = scorers.map(|scorer| scorer.survey(slice.chunk, candidates)).collect();
            numbers.into_iter().collect()
        };
        if let Some(numbers) = numbers {
            reuse.put_survey(slice, numbers);
        }
    }

    /// Ends the survey.
    ///
    /// # Errors
    /// A plugin cannot score the candidates.
    fn finish_survey(&mut self) -> Result<(), Problem> {
        self.surveyors().try_for_each(|scorer| scorer.finish_survey())
    }

    /// Inputs of the scores from outside of chunks; `None`: some scorer reads more, or a score may leave its range.
    pub(super) fn outside_inputs(&self) -> Option<HookInputs> {
        let scorers = self.scorers.iter().map(|score| score.scorer.as_ref());
        let inputs = HookInputs::of(scorers.map(|scorer| Some(scorer?.outside_inputs())));
        inputs.filter(|_| !self.have_ranges())
    }
}
