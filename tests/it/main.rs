//! All integration tests, in one crate.
#![cfg(test)]

mod capacity_card;
mod command_line;
mod diagnosis;
mod docs;
mod documents;
mod extender;
mod hierarchy;
mod hostile;
mod job_state;
mod ledger;
mod namespaces;
mod negative_amounts;
mod objects;
mod openb;
mod operate;
mod place;
mod policies;
mod process;
mod profiles;
mod publishing;
mod rebuild;
mod rebuild_cluster_state;
mod records_of_objects;
mod revisions;
mod schemas;
mod security;
mod server_surface;
mod session_model;
mod sources;
mod stored_labels;
mod storm;
mod support;
mod tools;
mod vectors;
mod yaml_reader;
