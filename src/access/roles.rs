//! Roles, and sets of them.

use std::fmt;

/// Role of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    /// Read state and policies, and make decisions without effects.
    Read,
    /// Do what a scheduler does: sessions, confirmations, commits, and their release.
    Decide,
    /// Send records of the sources that are named.
    Sync,
    /// Change policies, forget sources and resources, and end what others hold.
    Admin,
}

impl Role {
    /// All roles, in the order of their names in lists.
    pub const ALL: [Self; 4] = [Self::Read, Self::Decide, Self::Sync, Self::Admin];

    /// Name in the identities file, such as `decide`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Decide => "decide",
            Self::Sync => "sync",
            Self::Admin => "admin",
        }
    }

    /// Role with this name. `None`: another name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.name() == name)
    }
}

/// Set of roles, one bit for each role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoleSet(u8);

impl RoleSet {
    /// Every role.
    pub const ALL: Self = Self::of(&Role::ALL);

    /// Set with the given roles.
    pub const fn of(roles: &[Role]) -> Self {
        let mut bits = 0;
        let mut rest = roles;
        while let [role, more @ ..] = rest {
            bits |= 1 << *role as u8;
            rest = more;
        }
        Self(bits)
    }

    /// True if the role is in the set.
    pub fn contains(self, role: Role) -> bool {
        self.0 & (1 << role as u8) != 0
    }

    /// True if a role is in both sets.
    pub fn intersects(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    /// True if the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Roles of the set, in the order of [`Role::ALL`].
    pub fn iter(self) -> impl Iterator<Item = Role> {
        Role::ALL.into_iter().filter(move |role| self.contains(*role))
    }
}

impl fmt::Display for RoleSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<&str> = self.iter().map(Role::name).collect();
        match names.as_slice() {
            [] => f.write_str("none"),
            names => f.write_str(&names.join(", ")),
        }
    }
}
