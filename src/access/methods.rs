//! Matrix of methods and roles: the only definition of the roles that a call needs. For example, Filter needs `read` or
//! `decide`.

use std::fmt::Write as _;

use super::roles::{Role, RoleSet};

/// Callers that may use a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MethodAccess {
    /// Everybody who can connect.
    Open,
    /// Everybody, as long as probes are open; otherwise each role.
    Probe,
    /// Callers with at least one role of this set.
    Roles(RoleSet),
}

/// One method, and who may call it.
#[derive(Clone, Copy, Debug)]
pub struct MethodRule {
    /// Path of the gRPC method, such as `/pumice.v1.DecisionService/Filter`.
    pub path: &'static str,
    /// Callers that may use the method.
    pub access: MethodAccess,
}

const fn open(path: &'static str) -> MethodRule {
    MethodRule {
        path,
        access: MethodAccess::Open,
    }
}

const fn probe(path: &'static str) -> MethodRule {
    MethodRule {
        path,
        access: MethodAccess::Probe,
    }
}

const fn by(path: &'static str, roles: &[Role]) -> MethodRule {
    MethodRule {
        path,
        access: MethodAccess::Roles(RoleSet::of(roles)),
    }
}

use Role::{Admin, Decide, Read, Sync};

/// Condition of Admit in addition to its path: a confirmation creates a reservation.
pub(crate) const ADMIT_CONFIRM: &str = "/pumice.v1.DecisionService/Admit (CONFIRM)";

/// Condition of Place in addition to its path: a commit affects the decisions of all callers.
pub(crate) const PLACE_COMMIT: &str = "/pumice.v1.DecisionService/Place (COMMIT)";

/// All methods, sorted by path. A path that is not in the list requires all roles.
pub static METHODS: &[MethodRule] = &[
    probe("/grpc.health.v1.Health/Check"),
    probe("/grpc.health.v1.Health/Watch"),
    by("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo", &Role::ALL),
    by(
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
        &Role::ALL,
    ),
    by("/pumice.v1.DecisionService/Admit", &[Read, Decide]),
    by(ADMIT_CONFIRM, &[Decide]),
    by("/pumice.v1.DecisionService/CloseSession", &[Decide, Admin]),
    by("/pumice.v1.DecisionService/CommitSession", &[Decide]),
    by("/pumice.v1.DecisionService/Filter", &[Read, Decide]),
    by("/pumice.v1.DecisionService/ListSessions", &[Read, Decide, Admin]),
    by("/pumice.v1.DecisionService/OpenSession", &[Decide]),
    by("/pumice.v1.DecisionService/Order", &[Read, Decide]),
    by("/pumice.v1.DecisionService/Place", &[Read, Decide]),
    by(PLACE_COMMIT, &[Decide]),
    by("/pumice.v1.DecisionService/Score", &[Read, Decide]),
    by("/pumice.v1.DecisionService/SelectVictims", &[Read, Decide]),
    by("/pumice.v1.PolicyService/DeletePolicy", &[Admin]),
    by("/pumice.v1.PolicyService/GetPolicy", &[Read, Decide, Admin]),
    by("/pumice.v1.PolicyService/ListPolicies", &[Read, Decide, Admin]),
    by("/pumice.v1.PolicyService/ReloadPolicy", &[Admin]),
    by("/pumice.v1.PolicyService/RollbackPolicy", &[Admin]),
    by("/pumice.v1.StateService/Apply", &[Sync]),
    by("/pumice.v1.StateService/ForgetResource", &[Admin]),
    by("/pumice.v1.StateService/ForgetSource", &[Admin]),
    by("/pumice.v1.StateService/GetNodeTable", &Role::ALL),
    by("/pumice.v1.StateService/GetServerInfo", &Role::ALL),
    by("/pumice.v1.StateService/ListJobs", &[Read, Decide, Admin]),
    by("/pumice.v1.StateService/ListNamespaces", &[Read, Decide, Admin]),
    by("/pumice.v1.StateService/ListNodes", &[Read, Decide, Admin]),
    by("/pumice.v1.StateService/ListQueues", &[Read, Decide, Admin]),
    by("/pumice.v1.StateService/ListReservations", &[Read, Decide, Admin]),
    by("/pumice.v1.StateService/ListTasks", &[Read, Decide, Admin]),
    by("/pumice.v1.StateService/ReleaseAssumptions", &[Decide, Admin]),
    by("/pumice.v1.StateService/ReleaseReservation", &[Decide, Admin]),
    by("/pumice.v1.StateService/Sync", &[Sync]),
    open("/pumice.v1.StateService/WhoAmI"),
];

/// Callers that may call the method at a path. `None`: the method does not exist.
pub(super) fn access_of(path: &str) -> Option<MethodAccess> {
    let at = METHODS.binary_search_by(|rule| rule.path.cmp(path)).ok()?;
    METHODS.get(at).map(|rule| rule.access)
}

/// The matrix as a table for people.
pub fn matrix() -> String {
    let mut table = String::from("| Method | `read` | `decide` | `sync` | `admin` |\n|---|---|---|---|---|\n");
    for rule in METHODS {
        let name = rule
            .path
            .trim_start_matches('/')
            .trim_start_matches("pumice.v1.")
            .replace('/', ".");
        let cells = match rule.access {
            MethodAccess::Open => "open to everybody | | | |".to_owned(),
            MethodAccess::Probe => "open while `probes` are; otherwise any role | | | |".to_owned(),
            MethodAccess::Roles(roles) => {
                let cell = |role| if roles.contains(role) { "✓ |" } else { " |" };
                Role::ALL.map(cell).join(" ")
            }
        };
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{name}` | {cells}");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_in_order_and_has_every_method_of_the_protocol() {
        assert!(METHODS.is_sorted_by(|a, b| a.path < b.path));
        let pool = prost_reflect::DescriptorPool::decode(pumice_protocol::FILE_DESCRIPTOR_SET).unwrap();
        let mut paths: Vec<String> = pool
            .services()
            .flat_map(|service| {
                let name = service.full_name().to_owned();
                let methods: Vec<String> = service
                    .methods()
                    .map(|method| format!("/{name}/{}", method.name()))
                    .collect();
                methods
            })
            .collect();
        paths.sort();
        let listed: Vec<&str> = METHODS
            .iter()
            .map(|rule| rule.path)
            .filter(|path| path.starts_with("/pumice.v1.") && ![ADMIT_CONFIRM, PLACE_COMMIT].contains(path))
            .collect();
        assert_eq!(listed, paths);
    }

    #[test]
    fn the_page_has_the_matrix() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/tasks/roles.md");
        let page = std::fs::read_to_string(path).unwrap();
        let (begin, end) = ("<!-- matrix -->\n", "<!-- end of the matrix -->");
        let (head, rest) = page.split_once(begin).unwrap();
        let (shown, tail) = rest.split_once(end).unwrap();
        if std::env::var_os("PUMICE_BLESS").is_some() {
            std::fs::write(path, format!("{head}{begin}{}{end}{tail}", matrix())).unwrap();
            return;
        }
        assert_eq!(shown, matrix(), "PUMICE_BLESS=1 rewrites it");
    }
}
