//! Access control: roles, the methods that they permit, and the identities that have them.
//!
//! Identities come from a file that is reloaded when it changes. Without the file, every client that can connect has
//! all roles; only the transport restricts access.

mod caller;
mod identities;
mod keeper;
mod methods;
mod roles;
mod token_reviews;

pub use caller::{AccessRejection, AccessRejectionKind, CallerAccess, CallerKind, KnownCaller};
pub use identities::Identity;
pub use keeper::{AccessKeeper, AccessStart};
pub(crate) use methods::{ADMIT_CONFIRM, PLACE_COMMIT};
pub use methods::{METHODS, MethodAccess, MethodRule, matrix};
pub use roles::{Role, RoleSet};

/// Reads a file of identities for the fuzzer; the number of its identities.
#[cfg(feature = "test-doors")]
pub(crate) fn read_identity_text(text: &str, folder: &std::path::Path) -> Result<usize, String> {
    let file = identities::IdentityFile::parse(text, folder).map_err(|error| error.to_string())?;
    Ok(file.entries.len())
}

/// Reads a file of tokens for the fuzzer; the number of its tokens.
#[cfg(feature = "test-doors")]
pub(crate) fn read_token_text(text: &str) -> Result<usize, String> {
    let tokens = identities::read_tokens(text).map_err(|error| error.to_string())?;
    Ok(tokens.len())
}
