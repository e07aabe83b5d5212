//! Shared parts of the commands: arguments, output, errors, files of records, and queries to a server.
//!
//! Commands use a server only through its protocol. Commands that evaluate files get [`LocalServices`], the services of
//! the program itself.
#![expect(
    clippy::missing_errors_doc,
    reason = "every error is a `CommandError` or a sentence, which ends the command"
)]

pub mod args;
pub mod cluster_record;
pub mod constraint_args;
mod error;
pub mod files;
pub mod full_sync;
pub mod import_files;
pub mod listings;
mod local_services;
pub mod node_query;
pub mod not_evaluated;
pub mod output;
pub mod pinned_client;
pub mod policy_args;
pub mod remedies;
pub mod resource_key;
pub mod schema;
pub mod score_table;
pub mod scrape;
pub mod state_check;
pub mod table;
pub mod task;
pub mod unknown_name;
pub mod what_if;

pub use args::{ClientArgs, ColorMode, CredentialArgs, OutputFormat};
pub use error::CommandError;
pub use local_services::{ListeningServer, LocalServer, LocalServices, ServedServer, StartingServer};
