//! A file of cases: policy, cluster, query and expectations, each with its line.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prost::Message;
use prost_reflect::MessageDescriptor;

use super::expect::{self, CaseExpectation};
use super::query::CaseQuery;
use super::yaml::{self, CaseFileError, CaseFileResult, MapFields};
use pumice_console::CommandError;
use pumice_console::import_files::ReleaseFiles;
use pumice_console::schema;
use pumice_console::state_check::StateWarning;
use pumice_engine::model::ErrorCode;
use pumice_engine::policy::{
    Compatibility, CompileOptions, DiagnosticReport, Mark, Policy, Release, YamlLimits, YamlNode, YamlValue, compile,
};
use pumice_kubernetes::import::AmountRules;
use pumice_kubernetes::object::missing_queues;
use pumice_protocol::v1 as pb;

/// Bytes of one file of cases.
const FILE_BYTES: usize = 16 << 20;
/// Values in it.
const FILE_VALUES: usize = 2_000_000;

/// Policy and cluster of a case.
#[derive(Debug, Clone, Default)]
pub(super) struct CaseSetup {
    pub(super) document: String,
    pub(super) compatibility: String,
    pub(super) profile: String,
    pub(super) cluster: pb::Cluster,
    /// The `clusterFile`, with its place. Cases read it by the release that they follow.
    cluster_file: Option<(PathBuf, Mark)>,
    /// Warnings of the import of a `clusterFile`.
    pub(super) import_warnings: Vec<StateWarning>,
}

impl CaseSetup {
    /// The policy, compiled; without a document the built-in one.
    ///
    /// # Errors
    /// The document has an error.
    pub(super) fn policy(&self, built_in: &str) -> Result<Arc<Policy>, pb::Problem> {
        let document = Some(self.document.as_str()).filter(|document| !document.is_empty());
        let options = CompileOptions {
            compatibility: Compatibility::from_name(&self.compatibility).unwrap_or_default(),
            ..CompileOptions::default()
        };
        let compiled = compile(document.unwrap_or(built_in), &options);
        let rejected = |report: DiagnosticReport| {
            let errors: Vec<String> = report.errors().map(ToString::to_string).collect();
            pb::Problem {
                reason: ErrorCode::PolicyRejected.name().to_owned(),
                message: format!("the policy is invalid: {}", errors.join("; ")),
                ..pb::Problem::default()
            }
        };
        Ok(compiled.map_err(rejected)?.policy)
    }
}

/// One case.
pub(super) struct PolicyTestCase {
    pub(super) name: String,
    pub(super) line: u32,
    pub(super) setup: CaseSetup,
    pub(super) query: CaseQuery,
    pub(super) expected: Vec<CaseExpectation>,
}

/// Descriptors of the records that files hold.
#[derive(Debug)]
struct CaseSchema {
    cluster: MessageDescriptor,
    task: MessageDescriptor,
    job: MessageDescriptor,
}

/// Reads files of one folder.
struct CaseReader {
    file: PathBuf,
    schema: CaseSchema,
    /// Cluster files that were read.
    files: RefCell<BTreeMap<PathBuf, ReleaseFiles>>,
}

/// Cluster of a file, with the warnings of its import.
type ImportedCluster = (pb::Cluster, Vec<StateWarning>);

/// True if a text has cases. True also for an unreadable text: its error is reported later.
pub(super) fn has_cases(text: &str) -> bool {
    match pumice_engine::policy::yaml::read(text, &limits()) {
        Ok(node) => {
            let YamlValue::Map(pairs) = &node.value else {
                return false;
            };
            pairs
                .iter()
                .any(|(key, _)| matches!(&key.value, YamlValue::String(key) if key == "cases"))
        }
        Err(_) => true,
    }
}

fn limits() -> YamlLimits {
    YamlLimits {
        bytes: FILE_BYTES,
        read_bytes: FILE_BYTES.saturating_mul(2),
        nodes: FILE_VALUES,
        reads: FILE_VALUES,
        ..YamlLimits::default()
    }
}

/// Reads a file.
///
/// # Errors
/// Outer: the protocol's own descriptors cannot be read. Inner: the first error of the file.
pub(super) fn read_cases(file: &Path, text: &str) -> Result<CaseFileResult<Vec<PolicyTestCase>>, CommandError> {
    let shapes = CaseSchema {
        cluster: schema::message("Cluster")?,
        task: schema::message("Task")?,
        job: schema::message("Job")?,
    };
    let file = file.to_owned();
    let reader = CaseReader {
        file,
        schema: shapes,
        files: RefCell::default(),
    };
    Ok(reader.cases(text))
}

impl CaseReader {
    fn cases(&self, text: &str) -> CaseFileResult<Vec<PolicyTestCase>> {
        let node = pumice_engine::policy::yaml::read(text, &limits())
            .map_err(|error| CaseFileError::at(error.mark, error.message))?;
        let mut fields = MapFields::of(&node, "the file")?;
        let common = self.setup(&mut fields, &CaseSetup::default())?;
        let cases = fields.take("cases");
        fields.finish()?;
        let Some(cases) = cases else {
            return Err(CaseFileError::at(node.mark, "there are no `cases`"));
        };
        let cases = yaml::list(cases, "`cases`")?;
        cases.iter().map(|case| self.case(case, &common)).collect()
    }

    fn case(&self, node: &YamlNode, common: &CaseSetup) -> CaseFileResult<PolicyTestCase> {
        let mut fields = MapFields::of(node, "a case")?;
        let line = fields.mark.line;
        let Some(name) = fields.take("name") else {
            return Err(CaseFileError::at(node.mark, "the case has no `name`"));
        };
        let name = yaml::text(name, "`name`")?;
        let mut evaluation_ref = self.setup(&mut fields, common)?;
        if let Some((path, mark)) = &evaluation_ref.cluster_file {
            let policy = evaluation_ref.policy("");
            let release = policy.map_or_else(|_| Release::default(), |policy| policy.compatibility().release());
            (evaluation_ref.cluster, evaluation_ref.import_warnings) = self.import(path, *mark, release)?;
        }
        if let Some(with) = fields.take("with") {
            merge(&mut evaluation_ref.cluster, self.cluster(with)?);
        }
        let mut queries = Vec::new();
        for (key, read) in QUERY_READERS {
            if let Some(asked) = fields.take(key) {
                queries.push(read(self, asked)?);
            }
        }
        let mut queries = queries.into_iter();
        let (Some(query), None) = (queries.next(), queries.next()) else {
            let known = QUERY_READERS.map(|(key, _)| key).join(", ");
            return Err(CaseFileError::at(
                node.mark,
                format!("case `{name}` asks not exactly one of {known}"),
            ));
        };
        let Some(expect) = fields.take("expect") else {
            return Err(CaseFileError::at(node.mark, format!("case `{name}` has no `expect`")));
        };
        let expected = expect::read_expectations(expect, &query)?;
        fields.finish()?;
        Ok(PolicyTestCase {
            name,
            line,
            setup: evaluation_ref,
            query,
            expected,
        })
    }

    /// Policy and cluster; a field that is not written is taken from `common`.
    fn setup(&self, fields: &mut MapFields<'_>, common: &CaseSetup) -> CaseFileResult<CaseSetup> {
        let mut evaluation_ref = common.clone();
        match (fields.take("policy"), fields.take("document")) {
            (Some(policy), Some(_)) => {
                return Err(CaseFileError::at(
                    policy.mark,
                    "`policy` and `document` exclude each other",
                ));
            }
            (Some(policy), None) => evaluation_ref.document = self.read_file(policy, "`policy`")?,
            (None, Some(document)) => evaluation_ref.document = yaml::text(document, "`document`")?,
            (None, None) => {}
        }
        if let Some(compatibility) = fields.take("compatibility") {
            evaluation_ref.compatibility = yaml::text(compatibility, "`compatibility`")?;
            if Compatibility::from_name(&evaluation_ref.compatibility).is_none() {
                let known = Compatibility::ALL.map(Compatibility::name).join(", ");
                let message = format!(
                    "`compatibility` is `{}`, not one of {known}",
                    evaluation_ref.compatibility
                );
                return Err(CaseFileError::at(compatibility.mark, message));
            }
        }
        if let Some(profile) = fields.read("profile", yaml::text)? {
            evaluation_ref.profile = profile;
        }
        match (fields.take("cluster"), fields.take("clusterFile")) {
            (Some(cluster), Some(_)) => {
                return Err(CaseFileError::at(
                    cluster.mark,
                    "`cluster` and `clusterFile` exclude each other",
                ));
            }
            (Some(cluster), None) => {
                evaluation_ref.cluster = self.cluster(cluster)?;
                evaluation_ref.cluster_file = None;
                evaluation_ref.import_warnings = Vec::new();
            }
            (None, Some(file)) => {
                let path = self.relative_path(&yaml::text(file, "`clusterFile`")?);
                evaluation_ref.cluster_file = Some((path, file.mark));
            }
            (None, None) => {}
        }
        Ok(evaluation_ref)
    }

    /// Cluster of a file by the rules of a release, with the queues that no file has.
    fn import(&self, path: &Path, mark: Mark, release: Release) -> CaseFileResult<ImportedCluster> {
        let mut files = self.files.borrow_mut();
        let failed = |failure: CommandError| CaseFileError::at(mark, failure.to_string());
        let file = match files.entry(path.to_owned()) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => {
                let read = ReleaseFiles::read(&[path.to_owned()], AmountRules::default());
                place.insert(read.map_err(failed)?)
            }
        };
        let imported = file.under(release).map_err(failed)?;
        let rejected = imported
            .rejected
            .iter()
            .map(|rejected| StateWarning::rejected(rejected));
        let warnings = rejected.chain(imported.warnings.iter().cloned()).collect();
        let mut cluster = imported.cluster.clone();
        let made = missing_queues(&cluster);
        cluster.queues.extend(made);
        Ok((cluster, warnings))
    }

    fn relative_path(&self, path: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    fn read_file(&self, node: &YamlNode, what: &str) -> CaseFileResult<String> {
        let path = self.relative_path(&yaml::text(node, what)?);
        std::fs::read_to_string(&path)
            .map_err(|error| CaseFileError::at(node.mark, format!("{}: {error}", path.display())))
    }

    fn cluster(&self, node: &YamlNode) -> CaseFileResult<pb::Cluster> {
        record(node, &self.schema.cluster, "`cluster`")
    }

    /// A task: the name of one of the cluster, or a whole one.
    fn task(&self, node: &YamlNode) -> CaseFileResult<pb::Task> {
        match node.value.as_text() {
            Some(name) => Ok(pb::Task {
                name: name.to_owned(),
                ..pb::Task::default()
            }),
            None => record(node, &self.schema.task, "the task"),
        }
    }

    /// A job, likewise.
    fn job(&self, node: &YamlNode) -> CaseFileResult<pb::Job> {
        match node.value.as_text() {
            Some(name) => Ok(pb::Job {
                name: name.to_owned(),
                ..pb::Job::default()
            }),
            None => record(node, &self.schema.job, "the job"),
        }
    }

    fn filter(&self, node: &YamlNode) -> CaseFileResult<CaseQuery> {
        let mut fields = MapFields::of(node, "`filter`")?;
        let request = pb::FilterRequest {
            tasks: vec![self.required_task(&mut fields)?],
            candidates: candidates(&mut fields)?,
            plugins: plugins(&mut fields)?,
            resource_fit: resource_fit(&mut fields)?,
            samples: Some(0),
            ..pb::FilterRequest::default()
        };
        fields.finish()?;
        Ok(CaseQuery::Filter(request))
    }

    fn score(&self, node: &YamlNode) -> CaseFileResult<CaseQuery> {
        let mut fields = MapFields::of(node, "`score`")?;
        let request = pb::ScoreRequest {
            tasks: vec![self.required_task(&mut fields)?],
            candidates: candidates(&mut fields)?,
            plugins: plugins(&mut fields)?,
            resource_fit: resource_fit(&mut fields)?,
            samples: Some(0),
            with_filter: !fields.read("unfiltered", yaml::boolean)?.unwrap_or(false),
            with_parts: true,
            ..pb::ScoreRequest::default()
        };
        fields.finish()?;
        Ok(CaseQuery::Score(request))
    }

    fn place(&self, node: &YamlNode) -> CaseFileResult<CaseQuery> {
        let mut fields = MapFields::of(node, "`place`")?;
        let count = fields.read("count", yaml::optional_count)?.flatten().unwrap_or(1);
        let group = pb::TaskGroup {
            task: Some(self.required_task(&mut fields)?),
            count: Some(u32::try_from(count).unwrap_or(u32::MAX)),
            ..pb::TaskGroup::default()
        };
        let request = pb::PlaceRequest {
            groups: vec![group],
            // As many as fit.
            min_available: Some(0),
            candidates: candidates(&mut fields)?,
            samples: Some(0),
            ..pb::PlaceRequest::default()
        };
        fields.finish()?;
        Ok(CaseQuery::Place(Box::new(request)))
    }

    fn required_task(&self, fields: &mut MapFields<'_>) -> CaseFileResult<pb::Task> {
        match fields.take("task") {
            Some(task) => self.task(task),
            None => Err(CaseFileError::at(fields.mark, "the question has no `task`")),
        }
    }

    fn admit(&self, node: &YamlNode) -> CaseFileResult<CaseQuery> {
        use pb::admit_subject::Subject;
        let mut fields = MapFields::of(node, "`admit`")?;
        let mut subjects = Vec::new();
        if let Some(after) = fields.take("after") {
            for job in yaml::list(after, "`after`")? {
                subjects.push(Subject::Job(self.job(job)?));
            }
        }
        subjects.push(match (fields.take("job"), fields.take("task")) {
            (Some(job), None) => Subject::Job(self.job(job)?),
            (None, Some(task)) => Subject::Task(self.task(task)?),
            _ => {
                return Err(CaseFileError::at(
                    node.mark,
                    "`admit` asks about either a `job` or a `task`",
                ));
            }
        });
        let subject = |subject| pb::AdmitSubject {
            subject: Some(subject),
            ..pb::AdmitSubject::default()
        };
        let request = pb::AdmitRequest {
            items: subjects.into_iter().map(subject).collect(),
            plugins: plugins(&mut fields)?,
            ..pb::AdmitRequest::default()
        };
        fields.finish()?;
        Ok(CaseQuery::Admit(request))
    }

    fn order(_: &Self, node: &YamlNode) -> CaseFileResult<CaseQuery> {
        let mut fields = MapFields::of(node, "`order`")?;
        let request = pb::OrderRequest {
            queues: name_set(fields.take("queues"), "`queues`")?,
            jobs: name_set(fields.take("jobs"), "`jobs`")?,
            plugins: plugins(&mut fields)?,
            ..pb::OrderRequest::default()
        };
        fields.finish()?;
        if request.queues.is_none() && request.jobs.is_none() {
            return Err(CaseFileError::at(
                node.mark,
                "`order` asks about `queues`, `jobs` or both",
            ));
        }
        Ok(CaseQuery::Order(request))
    }

    fn victims(&self, node: &YamlNode) -> CaseFileResult<CaseQuery> {
        let mut fields = MapFields::of(node, "`victims`")?;
        let kind = victim_kind(&mut fields)?;
        let preemptor = fields.take("preemptor");
        if preemptor.is_none() && kind != pb::VictimKind::Shuffle {
            return Err(CaseFileError::at(node.mark, "`victims` has no `preemptor`"));
        }
        let mut group = pb::VictimGroup {
            preemptor: preemptor.map(|own| self.task(own)).transpose()?,
            ..pb::VictimGroup::default()
        };
        if let Some(on) = fields.read("node", yaml::text)? {
            group.node = on;
        }
        if let Some(candidates) = fields.take("candidates") {
            let candidates = yaml::list(candidates, "`candidates`")?.iter();
            group.candidates = candidates.map(|task| self.task(task)).collect::<CaseFileResult<_>>()?;
        }
        let request = pb::SelectVictimsRequest {
            kind: kind.into(),
            groups: vec![group],
            plugins: plugins(&mut fields)?,
            irreducible: fields.read("irreducible", yaml::boolean)?.unwrap_or(false),
            ..pb::SelectVictimsRequest::default()
        };
        fields.finish()?;
        Ok(CaseQuery::Victims(request))
    }

    fn cycle(_: &Self, node: &YamlNode) -> CaseFileResult<CaseQuery> {
        MapFields::of(node, "`cycle`")?.finish()?;
        Ok(CaseQuery::Cycle)
    }
}

type CaseQueryReader = fn(&CaseReader, &YamlNode) -> CaseFileResult<CaseQuery>;

/// Readers of queries, by their keys.
const QUERY_READERS: [(&str, CaseQueryReader); 7] = [
    ("filter", CaseReader::filter),
    ("score", CaseReader::score),
    ("place", CaseReader::place),
    ("admit", CaseReader::admit),
    ("order", CaseReader::order),
    ("victims", CaseReader::victims),
    ("cycle", CaseReader::cycle),
];

/// Kinds of evictions, by their words.
const VICTIM_KINDS: [(&str, pb::VictimKind); 5] = [
    ("preempt", pb::VictimKind::Preempt),
    ("reclaim", pb::VictimKind::Reclaim),
    ("gangPreempt", pb::VictimKind::GangPreempt),
    ("gangReclaim", pb::VictimKind::GangReclaim),
    ("shuffle", pb::VictimKind::Shuffle),
];

/// A whole record.
fn record<T: Message + Default>(node: &YamlNode, of: &MessageDescriptor, what: &str) -> CaseFileResult<T> {
    let message = yaml::message(node, of, what)?;
    message
        .transcode_to()
        .map_err(|error| CaseFileError::at(node.mark, error.to_string()))
}

/// Puts records into a cluster; one of the same name is replaced.
fn merge(into: &mut pb::Cluster, with: pb::Cluster) {
    fn put<T>(into: &mut Vec<T>, with: Vec<T>, name: fn(&T) -> &str) {
        for one in with {
            match into.iter_mut().find(|own| name(own) == name(&one)) {
                Some(own) => *own = one,
                None => into.push(one),
            }
        }
    }
    let pb::Cluster {
        nodes,
        queues,
        jobs,
        tasks,
        namespaces,
        objects: _,
        pod_rules: _,
        priority_classes,
    } = with;
    put(&mut into.nodes, nodes, |node| &node.name);
    put(&mut into.queues, queues, |queue| &queue.name);
    put(&mut into.jobs, jobs, |job| &job.name);
    put(&mut into.tasks, tasks, |task| &task.name);
    put(&mut into.namespaces, namespaces, |namespace| &namespace.name);
    put(&mut into.priority_classes, priority_classes, |class| &class.name);
}

fn plugins(fields: &mut MapFields<'_>) -> CaseFileResult<Vec<String>> {
    Ok(fields.read("plugins", yaml::texts)?.unwrap_or_default())
}

fn victim_kind(fields: &mut MapFields<'_>) -> CaseFileResult<pb::VictimKind> {
    let known = VICTIM_KINDS.map(|(name, _)| name).join(", ");
    let Some(node) = fields.take("kind") else {
        let message = format!("`victims` has no `kind`: one of {known}");
        return Err(CaseFileError::at(fields.mark, message));
    };
    let written = yaml::text(node, "`kind`")?;
    let found = VICTIM_KINDS.into_iter().find(|(name, _)| *name == written);
    let kind = found.map(|(_, kind)| kind);
    kind.ok_or_else(|| CaseFileError::at(node.mark, format!("`kind` is `{written}`, not one of {known}")))
}

fn candidates(fields: &mut MapFields<'_>) -> CaseFileResult<Option<pb::NodeSet>> {
    let names = fields.read("nodes", yaml::texts)?;
    Ok(names.map(|names| pb::NodeSet {
        names,
        ..pb::NodeSet::default()
    }))
}

fn resource_fit(fields: &mut MapFields<'_>) -> CaseFileResult<i32> {
    let Some(node) = fields.take("resourceFit") else {
        return Ok(pb::ResourceFit::Unspecified.into());
    };
    let fit = match yaml::text(node, "`resourceFit`")?.as_str() {
        "none" => pb::ResourceFit::None,
        "idle" => pb::ResourceFit::Idle,
        "futureIdle" => pb::ResourceFit::FutureIdle,
        other => {
            let message = format!("`resourceFit` is `{other}`, not none, idle or futureIdle");
            return Err(CaseFileError::at(node.mark, message));
        }
    };
    Ok(fit.into())
}

/// `all`, or a list of names.
fn name_set(node: Option<&YamlNode>, what: &str) -> CaseFileResult<Option<pb::NameSet>> {
    let Some(node) = node else { return Ok(None) };
    let names = if matches!(&node.value, YamlValue::String(all) if all == "all") {
        Vec::new()
    } else {
        yaml::texts(node, what)?
    };
    Ok(Some(pb::NameSet { names }))
}
