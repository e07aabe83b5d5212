//! Records that the API server has to tell again: what they were derived from changed, and they are not held here.

use std::collections::BTreeSet;
use std::sync::Arc;

use pumice_kubernetes::object::ObjectKind;

use crate::pages;
use crate::resources::{ResourceScope, scopes};

/// Namespaces whose waiting pods are read one by one; of more, all are read in one list.
const FEW_NAMESPACES: usize = 16;
/// Nodes that are read one by one; if more changed, all are read in one list.
const FEW_NODES: usize = 16;

/// Records that have to be read again.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct StaleRecords {
    /// Namespaces in which an owner changed what it selects: the selectors of the owners are part of the records of pods.
    pub(crate) namespaces: BTreeSet<String>,
    /// Nodes whose slices of devices changed.
    pub(crate) nodes: BTreeSet<String>,
}

impl StaleRecords {
    pub(crate) fn is_empty(&self) -> bool {
        self.namespaces.is_empty() && self.nodes.is_empty()
    }

    pub(crate) fn append(&mut self, mut more: StaleRecords) {
        self.namespaces.append(&mut more.namespaces);
        self.nodes.append(&mut more.nodes);
    }

    /// Lists that tell the records again, of nodes and of pods without a node.
    pub(crate) fn into_lists(self, watched_namespaces: &[Arc<str>]) -> Vec<(ResourceScope, String)> {
        let StaleRecords { namespaces, nodes } = self;
        let mut lists = Vec::new();
        for scope in scopes(&[]) {
            let in_namespace = |namespace: String| ResourceScope {
                namespace: Some(namespace.into()),
                ..scope.clone()
            };
            if scope.resource.kind == ObjectKind::Node {
                if nodes.len() > FEW_NODES {
                    lists.push((scope, String::new()));
                } else {
                    let names = nodes.iter().map(|name| selecting(&format!("metadata.name={name}")));
                    lists.extend(names.map(|query| (scope.clone(), query)));
                }
            } else if scope.resource.kind == ObjectKind::Pod {
                let query = selecting("spec.nodeName=");
                if watched_namespaces.is_empty() && namespaces.len() > FEW_NAMESPACES {
                    lists.push((scope, query));
                } else {
                    let scopes = namespaces.iter().cloned().map(in_namespace);
                    lists.extend(scopes.map(|scope| (scope, query.clone())));
                }
            }
        }
        lists
    }
}

fn selecting(fields: &str) -> String {
    format!("fieldSelector={}", pages::encoded(fields))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> BTreeSet<String> {
        (0..count).map(|number| format!("n{number:02}")).collect()
    }

    fn lists(namespaces: usize, nodes: usize, watched: &[Arc<str>]) -> Vec<String> {
        let stale = StaleRecords {
            namespaces: names(namespaces),
            nodes: names(nodes),
        };
        let lists = stale.into_lists(watched).into_iter();
        lists
            .map(|(scope, query)| format!("{}?{query}", scope.path()))
            .collect()
    }

    #[test]
    fn few_records_are_read_one_by_one_and_many_at_once() {
        let waiting = "fieldSelector=spec.nodeName%3D";
        assert_eq!(
            lists(1, 2, &[]),
            [
                "/api/v1/nodes?fieldSelector=metadata.name%3Dn00".to_owned(),
                "/api/v1/nodes?fieldSelector=metadata.name%3Dn01".to_owned(),
                format!("/api/v1/namespaces/n00/pods?{waiting}"),
            ]
        );
        assert_eq!(
            lists(17, 17, &[]),
            ["/api/v1/nodes?".to_owned(), format!("/api/v1/pods?{waiting}")]
        );
        // Rights to other namespaces may be missing.
        assert_eq!(lists(17, 0, &["n00".into()]).len(), 17);
        assert_eq!(lists(16, 16, &[]).len(), 32);
    }
}
