//! Admission ledger, over the wire.

mod command;
mod commits;
mod data_dir;
mod first_start;
mod queue_quotas;
mod storm;
mod wire;

use crate::support::TestDirectory;
use crate::support::ledger::{ask, confirm, limited, put_policy, wants};
