//! Imports files as records: dumps of `kubectl get … -o json` or `-o yaml`, and openb's CSV.
//!
//! The importer reads the kinds of the [field tables](field_tables), and quotas and budgets of namespaces. Objects may be single, in
//! lists of any kind, or in several documents. [`ImportedRecords::notes`] reports all ignored parts.

mod field_check;
mod field_tables;
#[cfg(test)]
mod job_tests;
mod openb;
mod outcome;
mod own_groups;
mod relations;
#[cfg(test)]
mod tests;
mod vcjob;
pub mod yaml;

use std::collections::BTreeMap;

use serde_json::Value;

pub use crate::object::{AmountRules, FieldError, RecordIdentity};
pub use field_tables::field_tables;
pub use openb::{GPU_MILLI_RESOURCE, GPU_RESOURCE, PODS_PER_NODE};
pub use outcome::{ImportError, ImportWarning, ImportedRecords, RejectedObject};
pub use own_groups::own_group_queue;

use crate::claims::ClaimedDevices;
use crate::object::{
    self, NamespaceParts, ObjectKind, ObjectRecord, PodController, PodOwners, fields, object_kind, object_title,
};
use pumice_engine::model::ErrorCode;
use pumice_protocol::v1 as pb;

/// Records by name, from the files read so far.
#[derive(Debug, Default)]
pub struct ClusterImport {
    nodes: BTreeMap<String, pb::Node>,
    queues: BTreeMap<String, pb::Queue>,
    jobs: BTreeMap<String, pb::Job>,
    tasks: BTreeMap<String, pb::Task>,
    namespaces: BTreeMap<String, pb::Namespace>,
    namespace_parts: NamespaceParts,
    rejected: Vec<RejectedObject>,
    unreadable: BTreeMap<(pb::RecordKind, String), pb::UnreadableRecord>,
    notes: BTreeMap<String, u64>,
    run_seconds: BTreeMap<String, u64>,
    amount_rules: AmountRules,
    priority_classes: BTreeMap<String, pb::PriorityClass>,
    owners: PodOwners,
    /// Controllers of pods by task.
    controllers: BTreeMap<String, Option<PodController>>,
    claims: ClaimedDevices,
    own_groups: own_groups::OwnPodGroups,
    volcano_jobs: vcjob::VolcanoJobs,
    field_check: field_check::FieldCheck,
    warnings: Vec<ImportWarning>,
}

impl ClusterImport {
    /// Empty import with these rules for the amounts of pods.
    #[must_use]
    pub fn new(amount_rules: AmountRules) -> Self {
        ClusterImport {
            amount_rules,
            ..ClusterImport::default()
        }
    }

    /// Reads one more file; `file` is its name in messages.
    ///
    /// # Errors
    /// The text has none of the formats. Single objects that cannot be used are in [`ImportedRecords::rejected`].
    pub fn read(&mut self, file: &str, text: &str) -> Result<(), ImportError> {
        if let Some(table) = openb::recognise(text) {
            return self.csv(table, text).map_err(|source| ImportError::Csv {
                file: file.to_owned(),
                source,
            });
        }
        if is_json(text) {
            return self.json(file, text);
        }
        for document in yaml::documents(text) {
            let value = yaml::read(document.text).map_err(|error| ImportError::Yaml {
                file: file.to_owned(),
                line: error.mark.line.saturating_add(document.lines_before),
                column: error.mark.column,
                message: error.message,
            })?;
            if let Some(value) = value {
                self.document(file, &value)?;
            }
        }
        Ok(())
    }

    /// Ends the reading like [`ClusterImport::finish`], and puts pods of Volcano that name no group into the one that its controller
    /// would make.
    #[must_use]
    pub fn finish_with_own_groups(mut self) -> ImportedRecords {
        let own_groups::OwnPodGroups { groups, members } = std::mem::take(&mut self.own_groups);
        for (task, group) in members {
            if let Some(task) = self.tasks.get_mut(&task).filter(|task| task.job.is_empty()) {
                task.job = group;
            }
        }
        // A group that the controller has made already counts.
        for (name, group) in groups {
            if !self.has_group(&name) {
                self.jobs.insert(name, group);
            }
        }
        self.finish()
    }

    /// Ends the reading: adds the pod groups and pods that the Jobs of Volcano lack, and relates all records to each other.
    #[must_use]
    pub fn finish(mut self) -> ImportedRecords {
        self.put_volcano_jobs();
        let classes = self.priority_classes.values();
        self.warnings
            .extend(relations::warnings(classes, self.jobs.values(), self.tasks.values()));
        let notes: Vec<&str> = self.claims.notes(&self.nodes).collect();
        for note in notes {
            self.note(note);
        }
        for note in self.namespace_parts.notes(&self.namespaces) {
            self.note(note);
        }
        for namespace in self.namespaces.values_mut() {
            self.namespace_parts.complete(namespace);
        }
        self.claims.complete(&mut self.nodes, &mut self.tasks);
        let mut cluster = pb::Cluster {
            nodes: self.nodes.into_values().collect(),
            queues: self.queues.into_values().collect(),
            jobs: self.jobs.into_values().collect(),
            tasks: self.tasks.into_values().collect(),
            namespaces: self.namespaces.into_values().collect(),
            priority_classes: self.priority_classes.into_values().collect(),
            ..pb::Cluster::default()
        };
        relations::apply(&mut cluster);
        for task in &mut cluster.tasks {
            if let Some(controller) = self.controllers.get(&task.name) {
                self.owners.complete(task, controller.as_ref());
            }
        }
        ImportedRecords {
            cluster,
            rejected: self.rejected,
            unreadable: self.unreadable.into_values().collect(),
            notes: self.notes,
            warnings: self.warnings,
            run_seconds: self.run_seconds,
        }
    }

    fn json(&mut self, file: &str, text: &str) -> Result<(), ImportError> {
        for value in serde_json::Deserializer::from_str(text).into_iter() {
            let value: Value = value.map_err(|source| ImportError::Json {
                file: file.to_owned(),
                source,
            })?;
            match value.as_array() {
                Some(items) => items.iter().try_for_each(|item| self.document(file, item))?,
                None => self.document(file, &value)?,
            }
        }
        Ok(())
    }

    fn csv(&mut self, table: openb::OpenbTable, text: &str) -> Result<(), csv::Error> {
        openb::lines(text, |number, line| {
            let outcome = match table {
                openb::OpenbTable::Nodes => openb::node(line).map(|node| self.put_node(node)),
                openb::OpenbTable::Tasks => openb::task(line).map(|task| {
                    if let Some(seconds) = openb::run_seconds(line) {
                        self.run_seconds.insert(task.name.clone(), seconds);
                    }
                    self.put_task(task);
                }),
            };
            if let Err(error) = outcome {
                let record = match table {
                    openb::OpenbTable::Nodes => openb::node_identity(line),
                    openb::OpenbTable::Tasks => openb::task_identity(line),
                };
                self.reject(format!("line {number}"), error, record);
            }
        })?;
        self.note(match table {
            openb::OpenbTable::Nodes => "openb nodes: each gets `pods: 110`, which the trace does not give",
            openb::OpenbTable::Tasks => {
                "openb tasks: a share of a GPU is the scalar openb/gpu-milli; all are pending; only simulations read how long they ran"
            }
        });
        Ok(())
    }

    fn document(&mut self, file: &str, value: &Value) -> Result<(), ImportError> {
        let shape = |message: String| ImportError::Shape {
            file: file.to_owned(),
            message,
        };
        if !value.is_object() {
            return Err(shape(format!(
                "a document is {}, not an object of Kubernetes",
                fields::kind(value)
            )));
        }
        let Some(kind) = value.get("kind").and_then(Value::as_str) else {
            return Err(shape(
                "an object has no `kind`: give what `kubectl get … -o json` writes".to_owned(),
            ));
        };
        let version = value.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
        let Some(item_kind) = kind.strip_suffix("List") else {
            self.object(version, kind, value);
            return Ok(());
        };
        let items = match value.get("items") {
            Some(Value::Array(items)) => items.as_slice(),
            Some(Value::Null) | None => &[],
            Some(other) => {
                return Err(shape(format!(
                    "`items` of a {kind} is {}, not a list",
                    fields::kind(other)
                )));
            }
        };
        for item in items {
            // Items of a typed list, such as a NodeList, leave out their own kind.
            let kind = item.get("kind").and_then(Value::as_str).unwrap_or(item_kind);
            self.object(
                item.get("apiVersion").and_then(Value::as_str).unwrap_or(version),
                kind,
                item,
            );
        }
        Ok(())
    }

    fn object(&mut self, version: &str, kind: &str, object: &Value) {
        let is_job = vcjob::is_volcano_job(version, kind);
        let known = object_kind(version, kind);
        let outcome = match known {
            Some(known) => {
                let diagnostics = self.field_check.object(known, object);
                self.report_fields(kind, object, diagnostics);
                self.put_object(known, object)
            }
            None if is_job => {
                let diagnostics = self.field_check.volcano_job(object);
                self.report_fields(kind, object, diagnostics);
                self.volcano_jobs.add(object);
                Ok(())
            }
            None => {
                self.note(&format!("{kind} ({version}): this kind is not read"));
                Ok(())
            }
        };
        if let Err(error) = outcome {
            let record = known.and_then(|known| object::identity(known, object));
            self.reject(object_title(kind, object), error, record);
        }
    }

    /// Notes an object that cannot be read, and the record that it would be.
    fn reject(&mut self, object: String, error: FieldError, record: Option<RecordIdentity>) {
        if let Some(RecordIdentity { kind, name, node }) = record.clone() {
            let unreadable = pb::UnreadableRecord {
                kind: kind.into(),
                name: name.clone(),
                field: error.field.clone(),
                message: error.reason.clone(),
                node,
            };
            self.unreadable.insert((kind, name), unreadable);
        }
        self.rejected.push(RejectedObject { object, error, record });
    }

    fn report_fields(&mut self, kind: &str, object: &Value, diagnostics: field_check::FieldDiagnostics) {
        for message in diagnostics.unknown {
            self.warnings.push(ImportWarning {
                code: ErrorCode::FieldNotRead,
                subject: object_title(kind, object),
                message,
            });
        }
        for sentence in diagnostics.unevaluated {
            self.note(&format!("{kind}: {sentence}"));
        }
    }

    fn put_object(&mut self, kind: ObjectKind, object: &Value) -> Result<(), FieldError> {
        if kind == ObjectKind::PodGroup {
            self.volcano_jobs.observe_group(object);
        }
        match object::read_value(kind, object, self.amount_rules)? {
            ObjectRecord::Node(node) => self.put_node(node),
            ObjectRecord::Queue(queue) => {
                let name = queue.name.clone();
                self.put_record((pb::RecordKind::Queue, "queue"), name, queue, |own| &mut own.queues);
            }
            ObjectRecord::Job(job) => {
                self.put_record((pb::RecordKind::Job, "job"), job.name.clone(), job, |own| &mut own.jobs);
            }
            ObjectRecord::Task(task, controller, claims) => {
                self.own_groups.note(&task, object);
                self.volcano_jobs.observe_pod(&task);
                for note in object::pod_notes(object) {
                    self.note(note);
                }
                self.claims.put_pod(&task, claims);
                self.controllers.insert(task.name.clone(), controller);
                self.put_task(task);
            }
            ObjectRecord::Namespace(namespace) => {
                let (kind, name) = ((pb::RecordKind::Namespace, "namespace"), namespace.name.clone());
                self.put_record(kind, name, namespace, |own| &mut own.namespaces);
            }
            ObjectRecord::Owner(owner) => {
                self.owners.add(owner);
            }
            ObjectRecord::Device(object) => {
                self.claims.put(object);
            }
            ObjectRecord::Part(part) => {
                self.namespace_parts.put(part);
            }
            ObjectRecord::PriorityClass(class) => {
                self.priority_classes.insert(class.name.clone(), class);
            }
        }
        Ok(())
    }

    /// Puts the records of the Jobs of Volcano whose pod groups and pods are not in the files.
    fn put_volcano_jobs(&mut self) {
        let volcano_jobs = std::mem::take(&mut self.volcano_jobs);
        let jobs = volcano_jobs.into_jobs(|name| self.has_group(name));
        for job in jobs {
            self.note(job.note());
            if let Err(error) = self.put_volcano_job(&job) {
                let record = object::identity(ObjectKind::PodGroup, &job.object);
                self.reject(object_title("Job", &job.object), error, record);
            }
        }
    }

    fn put_volcano_job(&mut self, job: &vcjob::VolcanoJob) -> Result<(), FieldError> {
        let vcjob::SplitJob { group, pods } = job.split()?;
        for pod in &pods {
            let name = fields::namespaced(&pod.object)?;
            // A pod that the files show, readable or not, is what it is.
            if self.has_pod(&name) {
                continue;
            }
            // The other pods of the Job can be read all the same.
            match self.put_object(ObjectKind::Pod, &pod.object) {
                Ok(()) => self.put_dependence(&name, pod.waits_for_others),
                Err(error) => self.reject(
                    object_title("Pod", &pod.object),
                    error,
                    object::identity(ObjectKind::Pod, &pod.object),
                ),
            }
        }
        group.map_or(Ok(()), |group| self.put_object(ObjectKind::PodGroup, &group))
    }

    /// Lists what the record of a pod does not have, if it waits for others.
    fn put_dependence(&mut self, task: &str, waits_for_others: bool) {
        if let Some(task) = self.tasks.get_mut(task).filter(|_| waits_for_others) {
            task.unevaluated_fields.push(vcjob::DEPENDS_ON.to_owned());
        }
    }

    /// True if the files have a pod group of this name, readable or not.
    fn has_group(&self, name: &str) -> bool {
        self.jobs.contains_key(name) || self.is_unreadable(pb::RecordKind::Job, name)
    }

    /// True if the files have a pod of this name, readable or not.
    fn has_pod(&self, name: &str) -> bool {
        self.tasks.contains_key(name) || self.is_unreadable(pb::RecordKind::Task, name)
    }

    fn is_unreadable(&self, kind: pb::RecordKind, name: &str) -> bool {
        self.unreadable.contains_key(&(kind, name.to_owned()))
    }

    fn note(&mut self, sentence: &str) {
        match self.notes.get_mut(sentence) {
            Some(count) => *count = count.saturating_add(1),
            None => drop(self.notes.insert(sentence.to_owned(), 1)),
        }
    }

    fn put_node(&mut self, node: pb::Node) {
        self.put_record((pb::RecordKind::Node, "node"), node.name.clone(), node, |own| {
            &mut own.nodes
        });
    }

    fn put_task(&mut self, task: pb::Task) {
        self.put_record((pb::RecordKind::Task, "task"), task.name.clone(), task, |own| {
            &mut own.tasks
        });
    }

    /// Puts a record into its list. `kind`: its kind, and the word for it in messages.
    fn put_record<T>(
        &mut self,
        (kind, word): (pb::RecordKind, &str),
        name: String,
        record: T,
        list: fn(&mut Self) -> &mut BTreeMap<String, T>,
    ) {
        let key = (kind, name.clone());
        self.unreadable.remove(&key);
        if list(self).insert(name, record).is_some() {
            self.warnings.push(ImportWarning {
                code: ErrorCode::RecordDuplicate,
                subject: format!("{word} {}", key.1),
                message: "this record stands more than once in the files; the last one counts".to_owned(),
            });
        }
    }
}

/// True if a text begins as JSON does; a flow map of YAML without quotes does not.
fn is_json(text: &str) -> bool {
    let mut rest = text.chars().filter(|c| !c.is_whitespace());
    match rest.next() {
        Some('{') => matches!(rest.next(), None | Some('"' | '}')),
        Some('[') => matches!(rest.next(), None | Some('{' | ']')),
        Some(_) | None => false,
    }
}
