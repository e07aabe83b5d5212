//! A file of cases: policy, cluster, question and what is expected, each with its line.

use std::path::{Path, PathBuf};

use prost_reflect::MessageDescriptor;

use super::expect::{self, Expected};
use super::yaml::{self, Fault, Fields, Read};
use crate::cli::schema::Schema;
use crate::cli::{Failure, state_watch};
use crate::engine::policy::{Limits, Node, Value};
use crate::import::Counting;
use crate::server::pb;

/// Bytes of one file of cases.
const FILE_BYTES: usize = 16 << 20;
/// Values in it.
const VALUES: usize = 2_000_000;

/// What a case is asked on.
#[derive(Debug, Clone, Default)]
pub(super) struct Ground {
    pub(super) document: String,
    pub(super) compatibility: String,
    pub(super) profile: String,
    pub(super) cluster: pb::Cluster,
}

/// One case.
#[derive(Debug)]
pub(super) struct Case {
    pub(super) name: String,
    pub(super) line: u32,
    pub(super) ground: Ground,
    pub(super) question: Question,
    pub(super) expected: Vec<Expected>,
}

/// What is asked.
#[derive(Debug, Clone)]
pub(super) enum Question {
    Filter(pb::FilterRequest),
    Score(pb::ScoreRequest),
    Admit(pb::AdmitRequest),
    Order(pb::OrderRequest),
    Victims(pb::SelectVictimsRequest),
}

/// The messages of records that stand in files.
#[derive(Debug)]
struct Shapes {
    cluster: MessageDescriptor,
    task: MessageDescriptor,
    job: MessageDescriptor,
}

/// Reads files of one folder.
struct Reader {
    file: PathBuf,
    shapes: Shapes,
}

/// Does a text have cases? One that cannot be read has: so its fault is told.
pub(super) fn has_cases(text: &str) -> bool {
    match crate::engine::policy::yaml::read(text, &limits()) {
        Ok(node) => {
            let Value::Map(pairs) = &node.value else { return false };
            pairs
                .iter()
                .any(|(key, _)| matches!(&key.value, Value::String(key) if key == "cases"))
        }
        Err(_) => true,
    }
}

fn limits() -> Limits {
    Limits {
        bytes: FILE_BYTES,
        read_bytes: FILE_BYTES.saturating_mul(2),
        nodes: VALUES,
        reads: VALUES,
        ..Limits::default()
    }
}

/// Reads a file.
///
/// # Errors
/// Outer: the protocol's own descriptors cannot be read. Inner: the first fault of the file.
pub(super) fn read(file: &Path, text: &str) -> Result<Read<Vec<Case>>, Failure> {
    let schema = Schema::read()?;
    let shapes = Shapes {
        cluster: schema.message("Cluster")?,
        task: schema.message("Task")?,
        job: schema.message("Job")?,
    };
    let file = file.to_owned();
    Ok(Reader { file, shapes }.cases(text))
}

impl Reader {
    fn cases(&self, text: &str) -> Read<Vec<Case>> {
        let node =
            crate::engine::policy::yaml::read(text, &limits()).map_err(|error| Fault::at(error.mark, error.message))?;
        let mut fields = Fields::of(&node, "the file")?;
        let common = self.ground(&mut fields, &Ground::default())?;
        let cases = fields.take("cases");
        fields.end()?;
        let Some(cases) = cases else {
            return Err(Fault::at(node.mark, "there are no `cases`"));
        };
        let cases = yaml::list(cases, "`cases`")?;
        cases.iter().map(|case| self.case(case, &common)).collect()
    }

    fn case(&self, node: &Node, common: &Ground) -> Read<Case> {
        let mut fields = Fields::of(node, "a case")?;
        let line = fields.mark.line;
        let Some(name) = fields.take("name") else {
            return Err(Fault::at(node.mark, "the case has no `name`"));
        };
        let name = yaml::text(name, "`name`")?;
        let mut ground = self.ground(&mut fields, common)?;
        if let Some(with) = fields.take("with") {
            merge(&mut ground.cluster, self.cluster(with)?);
        }
        let mut questions = Vec::new();
        for (key, read) in QUESTIONS {
            if let Some(asked) = fields.take(key) {
                questions.push(read(self, asked)?);
            }
        }
        let mut questions = questions.into_iter();
        let (Some(question), None) = (questions.next(), questions.next()) else {
            let known = QUESTIONS.map(|(key, _)| key).join(", ");
            return Err(Fault::at(
                node.mark,
                format!("case `{name}` asks not exactly one of {known}"),
            ));
        };
        let Some(expect) = fields.take("expect") else {
            return Err(Fault::at(node.mark, format!("case `{name}` has no `expect`")));
        };
        let expected = expect::read(expect, &question)?;
        fields.end()?;
        Ok(Case {
            name,
            line,
            ground,
            question,
            expected,
        })
    }

    /// Policy and cluster; what is not said is as in `common`.
    fn ground(&self, fields: &mut Fields<'_>, common: &Ground) -> Read<Ground> {
        let mut ground = common.clone();
        match (fields.take("policy"), fields.take("document")) {
            (Some(policy), Some(_)) => {
                return Err(Fault::at(policy.mark, "`policy` and `document` exclude each other"));
            }
            (Some(policy), None) => ground.document = self.file(policy, "`policy`")?,
            (None, Some(document)) => ground.document = yaml::text(document, "`document`")?,
            (None, None) => {}
        }
        if let Some(compatibility) = fields.take("compatibility") {
            ground.compatibility = yaml::text(compatibility, "`compatibility`")?;
        }
        if let Some(profile) = fields.take("profile") {
            ground.profile = yaml::text(profile, "`profile`")?;
        }
        match (fields.take("cluster"), fields.take("clusterFile")) {
            (Some(cluster), Some(_)) => {
                return Err(Fault::at(
                    cluster.mark,
                    "`cluster` and `clusterFile` exclude each other",
                ));
            }
            (Some(cluster), None) => ground.cluster = self.cluster(cluster)?,
            (None, Some(file)) => {
                let path = self.beside(&yaml::text(file, "`clusterFile`")?);
                let read = state_watch::import(&[path], Counting::default());
                ground.cluster = read.map_err(|failure| Fault::at(file.mark, failure.to_string()))?;
            }
            (None, None) => {}
        }
        Ok(ground)
    }

    fn beside(&self, path: &str) -> PathBuf {
        self.file.parent().unwrap_or(Path::new("")).join(path)
    }

    fn file(&self, node: &Node, what: &str) -> Read<String> {
        let path = self.beside(&yaml::text(node, what)?);
        std::fs::read_to_string(&path).map_err(|error| Fault::at(node.mark, format!("{}: {error}", path.display())))
    }

    fn cluster(&self, node: &Node) -> Read<pb::Cluster> {
        let cluster = yaml::message(node, &self.shapes.cluster, "`cluster`")?;
        cluster
            .transcode_to()
            .map_err(|error| Fault::at(node.mark, error.to_string()))
    }

    /// A task: the name of one of the cluster, or a whole one.
    fn task(&self, node: &Node) -> Read<pb::Task> {
        if let Value::String(name) = &node.value {
            return Ok(pb::Task {
                name: name.clone(),
                ..pb::Task::default()
            });
        }
        let task = yaml::message(node, &self.shapes.task, "the task")?;
        task.transcode_to()
            .map_err(|error| Fault::at(node.mark, error.to_string()))
    }

    fn job(&self, node: &Node) -> Read<pb::Job> {
        if let Value::String(name) = &node.value {
            return Ok(pb::Job {
                name: name.clone(),
                ..pb::Job::default()
            });
        }
        let job = yaml::message(node, &self.shapes.job, "the job")?;
        job.transcode_to()
            .map_err(|error| Fault::at(node.mark, error.to_string()))
    }

    fn filter(&self, node: &Node) -> Read<Question> {
        let mut fields = Fields::of(node, "`filter`")?;
        let request = pb::FilterRequest {
            tasks: vec![self.asked(&mut fields)?],
            candidates: candidates(&mut fields)?,
            plugins: plugins(&mut fields)?,
            resource_fit: fit(&mut fields)?,
            samples: Some(0),
            ..pb::FilterRequest::default()
        };
        fields.end()?;
        Ok(Question::Filter(request))
    }

    fn score(&self, node: &Node) -> Read<Question> {
        let mut fields = Fields::of(node, "`score`")?;
        let unfiltered = fields.take("unfiltered").map(|node| yaml::flag(node, "`unfiltered`"));
        let request = pb::ScoreRequest {
            tasks: vec![self.asked(&mut fields)?],
            candidates: candidates(&mut fields)?,
            plugins: plugins(&mut fields)?,
            resource_fit: fit(&mut fields)?,
            samples: Some(0),
            with_filter: !unfiltered.transpose()?.unwrap_or(false),
            with_parts: true,
            ..pb::ScoreRequest::default()
        };
        fields.end()?;
        Ok(Question::Score(request))
    }

    fn asked(&self, fields: &mut Fields<'_>) -> Read<pb::Task> {
        match fields.take("task") {
            Some(task) => self.task(task),
            None => Err(Fault::at(fields.mark, "the question has no `task`")),
        }
    }

    fn admit(&self, node: &Node) -> Read<Question> {
        use pb::admit_subject::Subject;
        let mut fields = Fields::of(node, "`admit`")?;
        let mut subjects = Vec::new();
        if let Some(after) = fields.take("after") {
            for job in yaml::list(after, "`after`")? {
                subjects.push(Subject::Job(self.job(job)?));
            }
        }
        subjects.push(match (fields.take("job"), fields.take("task")) {
            (Some(job), None) => Subject::Job(self.job(job)?),
            (None, Some(task)) => Subject::Task(self.task(task)?),
            _ => return Err(Fault::at(node.mark, "`admit` asks about either a `job` or a `task`")),
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
        fields.end()?;
        Ok(Question::Admit(request))
    }

    fn order(_: &Self, node: &Node) -> Read<Question> {
        let mut fields = Fields::of(node, "`order`")?;
        let request = pb::OrderRequest {
            queues: names(fields.take("queues"), "`queues`")?,
            jobs: names(fields.take("jobs"), "`jobs`")?,
            plugins: plugins(&mut fields)?,
            ..pb::OrderRequest::default()
        };
        fields.end()?;
        if request.queues.is_none() && request.jobs.is_none() {
            return Err(Fault::at(node.mark, "`order` asks about `queues`, `jobs` or both"));
        }
        Ok(Question::Order(request))
    }

    fn victims(&self, node: &Node) -> Read<Question> {
        let mut fields = Fields::of(node, "`victims`")?;
        let kind = match fields.take("kind") {
            Some(kind) => match yaml::text(kind, "`kind`")?.as_str() {
                "preempt" => pb::VictimKind::Preempt,
                "reclaim" => pb::VictimKind::Reclaim,
                other => {
                    return Err(Fault::at(
                        kind.mark,
                        format!("`kind` is `{other}`, not preempt or reclaim"),
                    ));
                }
            },
            None => return Err(Fault::at(node.mark, "`victims` has no `kind`: preempt or reclaim")),
        };
        let Some(preemptor) = fields.take("preemptor") else {
            return Err(Fault::at(node.mark, "`victims` has no `preemptor`"));
        };
        let mut group = pb::VictimGroup {
            preemptor: Some(self.task(preemptor)?),
            ..pb::VictimGroup::default()
        };
        if let Some(on) = fields.take("node") {
            group.node = yaml::text(on, "`node`")?;
        }
        if let Some(candidates) = fields.take("candidates") {
            let candidates = yaml::list(candidates, "`candidates`")?.iter();
            group.candidates = candidates.map(|task| self.task(task)).collect::<Read<_>>()?;
        }
        let irreducible = fields.take("irreducible").map(|node| yaml::flag(node, "`irreducible`"));
        let request = pb::SelectVictimsRequest {
            kind: kind.into(),
            groups: vec![group],
            plugins: plugins(&mut fields)?,
            irreducible: irreducible.transpose()?.unwrap_or(false),
            ..pb::SelectVictimsRequest::default()
        };
        fields.end()?;
        Ok(Question::Victims(request))
    }
}

type ReadQuestion = fn(&Reader, &Node) -> Read<Question>;

/// The questions by their keys.
const QUESTIONS: [(&str, ReadQuestion); 5] = [
    ("filter", Reader::filter),
    ("score", Reader::score),
    ("admit", Reader::admit),
    ("order", Reader::order),
    ("victims", Reader::victims),
];

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
    } = with;
    put(&mut into.nodes, nodes, |node| &node.name);
    put(&mut into.queues, queues, |queue| &queue.name);
    put(&mut into.jobs, jobs, |job| &job.name);
    put(&mut into.tasks, tasks, |task| &task.name);
}

fn plugins(fields: &mut Fields<'_>) -> Read<Vec<String>> {
    let plugins = fields.take("plugins").map(|node| yaml::texts(node, "`plugins`"));
    Ok(plugins.transpose()?.unwrap_or_default())
}

fn candidates(fields: &mut Fields<'_>) -> Read<Option<pb::NodeSet>> {
    let names = fields.take("nodes").map(|node| yaml::texts(node, "`nodes`"));
    Ok(names.transpose()?.map(|names| pb::NodeSet {
        names,
        ..pb::NodeSet::default()
    }))
}

fn fit(fields: &mut Fields<'_>) -> Read<i32> {
    let Some(node) = fields.take("resourceFit") else {
        return Ok(pb::ResourceFit::Unspecified.into());
    };
    let fit = match yaml::text(node, "`resourceFit`")?.as_str() {
        "none" => pb::ResourceFit::None,
        "idle" => pb::ResourceFit::Idle,
        "futureIdle" => pb::ResourceFit::FutureIdle,
        other => {
            let message = format!("`resourceFit` is `{other}`, not none, idle or futureIdle");
            return Err(Fault::at(node.mark, message));
        }
    };
    Ok(fit.into())
}

/// `all`, or a list of names.
fn names(node: Option<&Node>, what: &str) -> Read<Option<pb::NameSet>> {
    let Some(node) = node else { return Ok(None) };
    let names = if matches!(&node.value, Value::String(all) if all == "all") {
        Vec::new()
    } else {
        yaml::texts(node, what)?
    };
    Ok(Some(pb::NameSet { names }))
}
