//! Who may do what: roles, the methods that they allow, and the identities that have them.
//!
//! Identities come from a file that is read again when it changes. Without one, whoever can connect has all roles: the
//! transport decides who that is.

mod caller;
mod identities;
mod keeper;
mod methods;
mod roles;

pub use caller::{AccessRejection, CallerAccess, CallerKind, KnownCaller};
pub use identities::{Identity, IdentityProblem};
pub use keeper::{AccessError, AccessKeeper, AccessStart};
pub(crate) use methods::ADMIT_CONFIRM;
pub use methods::{METHODS, MethodAccess, MethodRule, matrix};
pub use roles::{Role, RoleSet};
