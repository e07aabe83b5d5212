//! `capacity-card` by its public functions: the recordings of the reference, and what is better under `corrected`.

pub(crate) mod case;
mod corrected;
mod promise;
mod steps;
