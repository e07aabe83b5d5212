//! `capacity-card` by its public functions: the recordings of the reference, and what is better under `corrected`.

mod beyond;
pub(crate) mod case;
mod corrected;
mod nodes;
mod one_card;
mod promise;
mod served;
mod steps;
mod vain;
