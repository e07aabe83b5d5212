//! Scheduler's side of the recorded operations: statements, their lists, saves, and rejections of its cache.
//!
//! It turns every recorded operation into the changes of a session, and asks a [`StatementTarget`] to make them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::cluster::{self, members};

/// Change of a session, by names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatementVerb {
    Allocate,
    Pipeline,
    Evict,
    Unallocate,
    Unpipeline,
    Unevict,
}

/// Error of an operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StatementError {
    /// The operation was rejected; the state after it counts.
    Rejected,
    /// The reference would crash; nothing was changed.
    Panic(String),
    /// The target does not support the operation; the sequence ends here.
    Unsupported(String),
}

/// Target that makes the changes.
pub(crate) trait StatementTarget {
    /// Makes one change.
    fn change(&mut self, verb: StatementVerb, task: &str, node: &str) -> Result<(), StatementError>;

    /// Makes the session's own Allocate or Pipeline, which leaves a rejected task half placed.
    fn place_without_rollback(&mut self, verb: StatementVerb, task: &str, node: &str) -> Result<(), StatementError>;

    /// Records that the bind of a task was sent.
    fn bind(&mut self, task: &str) -> Result<(), StatementError>;

    /// Node that the session has a task on.
    fn node_of(&mut self, task: &str) -> String;

    /// Names of the tasks of a job that are Allocated.
    fn allocated(&mut self, job: &str) -> Vec<String>;

    /// True if a node has a copy of a task; `None`: the target cannot see that.
    fn holds(&mut self, node: &str, task: &str) -> Option<bool>;
}

/// Task as a statement holds it; copies made by a save change independently.
#[derive(Clone, Debug)]
struct TaskCopy {
    task: String,
    node: String,
}

/// Operation in a statement's list.
#[derive(Clone, Copy, Debug)]
struct StatementOperation {
    verb: StatementVerb,
    object: usize,
}

/// Statements by name, and the rest of a scheduler.
pub(crate) struct StatementReplay<T> {
    /// Target of the changes.
    pub(crate) target: T,
    objects: Vec<TaskCopy>,
    /// Current object of each task in its job.
    current: BTreeMap<String, usize>,
    statements: BTreeMap<String, Vec<StatementOperation>>,
    saves: BTreeMap<String, Vec<StatementOperation>>,
    bind_fails: BTreeSet<String>,
    evict_fails: BTreeSet<String>,
    vetoed: BTreeSet<String>,
}

/// `namespace/task` of a recorded reference: `namespace/job|task`, or `namespace|task` without a job.
pub(crate) fn task_key(reference: &str) -> String {
    let (job, task) = reference.split_once('|').unwrap_or(("", reference));
    let namespace = job.split_once('/').map_or(job, |(namespace, _)| namespace);
    format!("{namespace}/{task}")
}

impl<T: StatementTarget> StatementReplay<T> {
    /// Scheduler of a case.
    pub(crate) fn new(case: &Value, target: T) -> Self {
        let names = |list: &Value| {
            members(list)
                .iter()
                .map(|name| task_key(&cluster::text(name)))
                .collect()
        };
        let stubs = members(&case["policy"]["stubs"]).iter();
        let vetoes = stubs.filter_map(|stub| stub["answers"]["allocateError"].as_object());
        Self {
            target,
            objects: Vec::new(),
            current: BTreeMap::new(),
            statements: BTreeMap::new(),
            saves: BTreeMap::new(),
            bind_fails: names(&case["request"]["bindFails"]),
            evict_fails: names(&case["request"]["evictFails"]),
            vetoed: vetoes
                .flat_map(|tasks| tasks.keys().map(|task| task_key(task)))
                .collect(),
        }
    }

    /// Number of operations that each statement holds.
    pub(crate) fn pending(&self) -> BTreeMap<String, usize> {
        self.statements
            .iter()
            .map(|(name, held)| (name.clone(), held.len()))
            .collect()
    }

    /// Runs one recorded operation.
    pub(crate) fn run(&mut self, op: &Value) -> Result<(), StatementError> {
        let word = op["op"].as_str().unwrap_or_default();
        let statement = op["stmt"].as_str().map(str::to_owned);
        let from: Vec<String> = members(&op["from"]).iter().map(cluster::text).collect();
        if let Some(name) = statement.as_ref().filter(|_| word != "save") {
            self.statements.entry(name.clone()).or_default();
        }
        if matches!(word, "merge" | "save") {
            for name in &from {
                self.statements.entry(name.clone()).or_default();
            }
        }
        let statement = statement.unwrap_or_default();
        match word {
            "commit" => self.commit(&statement),
            "discard" => self.discard(&statement),
            "merge" => {
                self.merge(&statement, &from);
                Ok(())
            }
            "save" => {
                self.save(&statement, &from);
                Ok(())
            }
            "recover" => self.recover(&statement, from.first().map_or("", String::as_str)),
            word => self.direct(word, &statement, op),
        }
    }

    /// Runs an operation on a named task.
    fn direct(&mut self, word: &str, statement: &str, op: &Value) -> Result<(), StatementError> {
        let job = cluster::text(&op["job"]);
        let task = task_key(&format!("{job}|{}", cluster::text(&op["task"])));
        let node = op["node"].as_str().unwrap_or_default();
        let object = self.current(&task);
        match word {
            "allocate" => self.place(statement, StatementVerb::Allocate, object, node),
            "pipeline" => self.place(statement, StatementVerb::Pipeline, object, node),
            "evict" => self.evict(statement, object),
            "unallocate" => self.make(StatementVerb::Unallocate, object, ""),
            "unpipeline" => self.make(StatementVerb::Unpipeline, object, ""),
            "unevict" => self.make(StatementVerb::Unevict, object, ""),
            "ssn_allocate" => self.session_allocate(&job, &task, node),
            "ssn_pipeline" => self.session_place(StatementVerb::Pipeline, &task, node),
            "ssn_evict" if self.evict_fails.contains(&task) => Err(StatementError::Rejected),
            "ssn_evict" => self.make(StatementVerb::Evict, object, ""),
            other => Err(StatementError::Unsupported(format!("operation {other}"))),
        }
    }

    fn current(&mut self, task: &str) -> usize {
        if let Some(&object) = self.current.get(task) {
            return object;
        }
        let node = self.target.node_of(task);
        self.objects.push(TaskCopy {
            task: task.to_owned(),
            node,
        });
        self.current.insert(task.to_owned(), self.objects.len() - 1);
        self.objects.len() - 1
    }

    /// Makes one change, on an object that then becomes the job's.
    fn make(&mut self, verb: StatementVerb, object: usize, node: &str) -> Result<(), StatementError> {
        let TaskCopy { task, node: on } = self.objects[object].clone();
        let places = matches!(verb, StatementVerb::Allocate | StatementVerb::Pipeline);
        let now = self.target.node_of(&task);
        // A statement undoes on the node that it remembers, a session on the one that the task has; if neither node has
        // a copy of the task, that is the same.
        let held = |node: &str, target: &mut T| !node.is_empty() && target.holds(node, &task) != Some(false);
        if !places && on != now && (held(&on, &mut self.target) || held(&now, &mut self.target)) {
            return Err(StatementError::Unsupported(
                "undo on a node that the task has left".to_owned(),
            ));
        }
        self.current.insert(task.clone(), object);
        let done = self.target.change(verb, &task, node);
        self.objects[object].node = match (verb, &done) {
            (StatementVerb::Evict | StatementVerb::Unevict, _) => on,
            (StatementVerb::Allocate | StatementVerb::Pipeline, Ok(())) => node.to_owned(),
            _ => String::new(),
        };
        done
    }

    /// Allocates or pipelines in a statement. If a handler of the scheduler rejects it, it is undone.
    fn place(&mut self, statement: &str, verb: StatementVerb, object: usize, node: &str) -> Result<(), StatementError> {
        self.make(verb, object, node)?;
        if self.vetoed.contains(&self.objects[object].task) {
            let undo = if verb == StatementVerb::Allocate {
                StatementVerb::Unallocate
            } else {
                StatementVerb::Unpipeline
            };
            self.make(undo, object, "")?;
            return Err(StatementError::Rejected);
        }
        self.hold(statement, verb, object);
        Ok(())
    }

    fn evict(&mut self, statement: &str, object: usize) -> Result<(), StatementError> {
        self.make(StatementVerb::Evict, object, "")?;
        self.hold(statement, StatementVerb::Evict, object);
        Ok(())
    }

    fn hold(&mut self, statement: &str, verb: StatementVerb, object: usize) {
        self.statements
            .entry(statement.to_owned())
            .or_default()
            .push(StatementOperation { verb, object });
    }

    fn session_place(&mut self, verb: StatementVerb, task: &str, node: &str) -> Result<(), StatementError> {
        let object = self.current(task);
        node.clone_into(&mut self.objects[object].node);
        self.target.place_without_rollback(verb, task, node)
    }

    fn session_allocate(&mut self, job: &str, task: &str, node: &str) -> Result<(), StatementError> {
        self.session_place(StatementVerb::Allocate, task, node)?;
        let allocated = self.target.allocated(job);
        for task in &allocated {
            if self.bind_fails.contains(task) {
                return Err(StatementError::Rejected);
            }
            self.target.bind(task)?;
        }
        Ok(())
    }

    fn commit(&mut self, statement: &str) -> Result<(), StatementError> {
        for StatementOperation { verb, object } in self.take(statement) {
            let task = self.objects[object].task.clone();
            match verb {
                StatementVerb::Allocate if self.bind_fails.contains(&task) => {
                    self.make(StatementVerb::Unallocate, object, "")?;
                }
                StatementVerb::Allocate => {
                    self.current.insert(task.clone(), object);
                    self.target.bind(&task)?;
                }
                StatementVerb::Evict if self.evict_fails.contains(&task) => {
                    self.make(StatementVerb::Unevict, object, "")?;
                }
                StatementVerb::Evict
                | StatementVerb::Pipeline
                | StatementVerb::Unallocate
                | StatementVerb::Unpipeline
                | StatementVerb::Unevict => {}
            }
        }
        Ok(())
    }

    fn discard(&mut self, statement: &str) -> Result<(), StatementError> {
        for StatementOperation { verb, object } in self.take(statement).into_iter().rev() {
            let undo = match verb {
                StatementVerb::Allocate => StatementVerb::Unallocate,
                StatementVerb::Pipeline => StatementVerb::Unpipeline,
                StatementVerb::Evict
                | StatementVerb::Unallocate
                | StatementVerb::Unpipeline
                | StatementVerb::Unevict => StatementVerb::Unevict,
            };
            self.make(undo, object, "")?;
        }
        Ok(())
    }

    fn take(&mut self, statement: &str) -> Vec<StatementOperation> {
        self.statements
            .get_mut(statement)
            .map(std::mem::take)
            .unwrap_or_default()
    }

    fn merge(&mut self, into: &str, from: &[String]) {
        for name in from {
            let moved = self.take(name);
            if name != into {
                self.statements.entry(into.to_owned()).or_default().extend(moved);
            }
        }
    }

    fn save(&mut self, name: &str, from: &[String]) {
        let held: Vec<StatementOperation> = from
            .iter()
            .flat_map(|name| self.statements.get(name).cloned().unwrap_or_default())
            .collect();
        let copies = held.into_iter().map(|StatementOperation { verb, object }| {
            self.objects.push(self.objects[object].clone());
            StatementOperation {
                verb,
                object: self.objects.len() - 1,
            }
        });
        let copies = copies.collect();
        self.saves.insert(name.to_owned(), copies);
    }

    fn recover(&mut self, statement: &str, save: &str) -> Result<(), StatementError> {
        for StatementOperation { verb, object } in self.saves.get(save).cloned().unwrap_or_default() {
            let node = self.objects[object].node.clone();
            match verb {
                StatementVerb::Evict => self.evict(statement, object)?,
                StatementVerb::Allocate if node.is_empty() => return Err(StatementError::Panic("no node".to_owned())),
                StatementVerb::Allocate
                | StatementVerb::Pipeline
                | StatementVerb::Unallocate
                | StatementVerb::Unpipeline
                | StatementVerb::Unevict => {
                    self.place(statement, verb, object, &node)?;
                }
            }
        }
        Ok(())
    }
}
