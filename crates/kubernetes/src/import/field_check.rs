//! Fields of objects that are not in the tables, and fields that Pumice does not evaluate.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_tables::FieldUse::{Annotations, Irrelevant, NotEvaluated, Parts, Read};
use super::field_tables::{ANNOTATIONS, FieldGroup, VOLCANO_JOB, fields_of};
use crate::object::ObjectKind;
use pumice_engine::policy::suggestion::nearest_name;

/// Sentences about the fields of one object.
#[derive(Debug, Default)]
pub(super) struct FieldDiagnostics {
    /// Unknown fields, and annotations that are nearly known ones: a sentence each.
    pub(super) unknown: BTreeSet<String>,
    /// Fields that are not evaluated, with the effect.
    pub(super) unevaluated: BTreeSet<String>,
}

/// Compares fields of objects with the tables.
#[derive(Debug, Default)]
pub(super) struct FieldCheck {
    /// Nearest known annotation, by the unknown one; each is compared once, however many objects have it.
    near_annotations: BTreeMap<String, Option<&'static str>>,
}

impl FieldCheck {
    /// Diagnostics about the fields of an object of a kind.
    pub(super) fn object(&mut self, kind: ObjectKind, object: &Value) -> FieldDiagnostics {
        fields_of(kind).map_or_else(FieldDiagnostics::default, |fields| self.find(fields, object))
    }

    /// Diagnostics about the fields of a Job of Volcano.
    pub(super) fn volcano_job(&mut self, object: &Value) -> FieldDiagnostics {
        self.find(VOLCANO_JOB, object)
    }

    fn find(&mut self, fields: &'static [FieldGroup], object: &Value) -> FieldDiagnostics {
        let mut diagnostics = FieldDiagnostics::default();
        self.add(fields, "", object, &mut diagnostics);
        diagnostics
    }

    /// Adds the diagnostics about the fields of a value, or of each item of a list.
    fn add(&mut self, fields: &'static [FieldGroup], path: &str, value: &Value, diagnostics: &mut FieldDiagnostics) {
        for item in value.as_array().into_iter().flatten() {
            self.add(fields, &format!("{path}[]"), item, diagnostics);
        }
        for (key, value) in value.as_object().into_iter().flatten() {
            let field = || {
                if path.is_empty() {
                    key.clone()
                } else {
                    format!("{path}.{key}")
                }
            };
            match fields.iter().find(|(_, names)| names.contains(&key.as_str())) {
                Some((Read | Irrelevant(_), _)) => {}
                Some((Parts(parts), _)) => self.add(parts, &field(), value, diagnostics),
                Some((Annotations, _)) => self.add_annotations(&field(), value, diagnostics),
                Some((NotEvaluated(effect), _)) => {
                    diagnostics
                        .unevaluated
                        .insert(format!("`{}` is not evaluated: {effect}", field()));
                }
                None => {
                    let known: Vec<&str> = fields.iter().flat_map(|(_, names)| names.iter().copied()).collect();
                    diagnostics
                        .unknown
                        .insert(unknown_field(&field(), nearest_name(key, &known)));
                }
            }
        }
    }

    /// Adds the annotations that are nearly known ones. Any other annotation is one of another program.
    fn add_annotations(&mut self, path: &str, annotations: &Value, diagnostics: &mut FieldDiagnostics) {
        let keys = annotations.as_object().into_iter().flat_map(Map::keys);
        for key in keys.filter(|key| !ANNOTATIONS.contains(&key.as_str())) {
            let near = self.near_annotations.entry(key.clone());
            let near = near.or_insert_with(|| nearest_name(key, ANNOTATIONS));
            if near.is_some() {
                diagnostics
                    .unknown
                    .insert(unknown_field(&format!("{path}[{key}]"), *near));
            }
        }
    }
}

fn unknown_field(path: &str, near: Option<&str>) -> String {
    match near {
        Some(near) => format!("field `{path}` is not read; did you mean `{near}`?"),
        None => format!("field `{path}` is not read: no such field is known"),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_unknown_field_is_named_with_its_path_and_the_likely_word() {
        let unknown = |kind, object: Value| {
            let diagnostics = FieldCheck::default().object(kind, &object);
            diagnostics.unknown.into_iter().collect::<Vec<_>>().join("; ")
        };
        let queue = |spec: Value| unknown(ObjectKind::Queue, json!({"spec": spec}));
        assert_eq!(
            queue(json!({"guarantee": {"cpu": 50}})),
            "field `spec.guarantee.cpu` is not read: no such field is known"
        );
        assert_eq!(
            queue(json!({"capabilities": {"cpu": 50}})),
            "field `spec.capabilities` is not read; did you mean `capability`?"
        );
        assert!(
            queue(json!({"affinity": {"nodeGroupAffinity": {"required": ["a"]}}}))
                .contains("nodeGroupAffinity.required`")
        );
        let spread = json!([{"maxSkew": 1, "matchLabels": {"a": "b"}, "labelSelector": {"matchLabel": {}}}]);
        let pod = unknown(ObjectKind::Pod, json!({"spec": {"topologySpreadConstraints": spread}}));
        assert!(
            pod.contains("`spec.topologySpreadConstraints[].matchLabels` is not read"),
            "{pod}"
        );
        assert!(
            pod.contains("labelSelector.matchLabel` is not read; did you mean `matchLabels`?"),
            "{pod}"
        );
        let node = json!({"metadata": {"labels": {"any": "x"}, "annotations": {"any": "x"}}, "status": {"any": 1}});
        assert_eq!(unknown(ObjectKind::Node, node), "");
        let namespace = json!({"metadata": {"name": "a", "lables": {}}, "spec": {"finalizers": []}});
        assert_eq!(
            unknown(ObjectKind::Namespace, namespace),
            "field `metadata.lables` is not read; did you mean `labels`?"
        );
    }

    #[test]
    fn fields_that_are_not_evaluated_are_named_with_their_effect() {
        let job = json!({"spec": {"networkTopology": {"mode": "hard"}, "tasks": [{"partitionPolicy": {}}]}});
        let diagnostics = FieldCheck::default().volcano_job(&job);
        let effects: Vec<String> = diagnostics.unevaluated.into_iter().collect();
        assert_eq!(effects.len(), 2, "{effects:?}");
        assert!(
            effects[0].starts_with("`spec.networkTopology` is not evaluated: "),
            "{effects:?}"
        );
        assert!(
            effects[1].starts_with("`spec.tasks[].partitionPolicy` is not evaluated: "),
            "{effects:?}"
        );
    }
}
