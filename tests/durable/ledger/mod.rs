//! Admission ledger, over the wire.

mod command;
mod commits;
mod data_dir;
mod first_start;
mod queue_quotas;
mod storm;
mod wire;

use crate::support::ledger::{LedgerTestDirectory, ask, confirm, limited, put_policy, wants};
