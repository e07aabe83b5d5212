//! All integration tests, in one crate.
#![cfg(test)]

mod capacity_card;
mod command_line;
mod docs;
mod documents;
mod edge;
mod hierarchy;
mod hostile;
mod ledger;
mod openb;
mod operate;
mod place;
mod policies;
mod process;
mod profiles;
mod publishing;
mod rebuild;
mod rebuild_view;
mod revisions;
mod session_model;
mod sources;
mod storm;
mod support;
mod tools;
mod understand;
mod vectors;
