//! `capacity-card` by its public functions: the recordings of the reference, and what is better under `corrected`.

mod account;
mod card_of_job;
pub(crate) mod case;
mod choice;
mod corrected;
mod extensions;
mod futile_preemption;
mod model;
mod nodes;
mod permit_quota;
mod served;
mod service_types;
mod steps;
mod tree_model;
mod unreadable_quota;
