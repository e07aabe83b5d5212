//! `capacity-card` by its public functions: the recordings of the reference, and what is better under `corrected`.

pub(crate) mod case;
mod corrected;
mod extensions;
mod futile_preemption;
mod nodes;
mod one_card;
mod permit_quota;
mod served;
mod steps;
