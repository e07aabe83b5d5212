//! Client that is pinned to one state of the server. All amounts of an explanation are therefore consistent.

use std::collections::BTreeMap;
use std::time::Duration;

use tonic::Code;

use crate::listings::RecordListing;
use crate::not_evaluated::UnevaluatedSet;
use crate::policy_args::against;
use crate::{CommandError, listings, what_if};
use pb::evaluation_ref::Target;
use pumice_engine::policy::{CompileOptions, compile};
use pumice_protocol::ClientConnection;
use pumice_protocol::v1 as pb;

/// Number of rejected nodes fetched with their measurements, per reason.
const SAMPLES: u32 = 1_000;

/// Connection to a server, pinned to one state by a session.
#[derive(Debug)]
pub struct PinnedClient {
    connection: ClientConnection,
    latest: pb::LatestRef,
    session: Option<String>,
    /// Copy of the state that is asked instead of the server's; `None`: the server's.
    copy: Option<Box<pb::InlineSnapshot>>,
    /// Number of changes applied in the session.
    applied_changes: u64,
    /// Time of the decisions, for plugins that compare with it; `None`: none is given.
    now: Option<prost_types::Timestamp>,
    /// Metadata of the session, or without one of the first response.
    pub metadata: Option<pb::ResponseMetadata>,
    /// Constraints that the results do not take into account.
    pub unevaluated: UnevaluatedSet,
    /// Files whose records are laid over the server's.
    pub with: Vec<String>,
    filter_plugins: Vec<String>,
    admit_plugins: Vec<String>,
    /// Active document of the policy, once it was asked for.
    document: Option<String>,
}

/// Records of the server, by name.
#[derive(Debug, Clone, Default)]
pub struct KnownRecords {
    /// Nodes, in the order of their names.
    pub nodes: Vec<pb::NodeStatus>,
    /// Queues by name.
    pub queues: BTreeMap<String, pb::QueueStatus>,
    /// Jobs by name.
    pub jobs: BTreeMap<String, pb::JobStatus>,
    /// Tasks by name.
    pub tasks: BTreeMap<String, pb::StoredTask>,
    /// Namespaces, in the order of their names.
    pub namespaces: Vec<pb::Namespace>,
}

impl PinnedClient {
    /// Pins the latest state under a policy. If the server has no free session, queries use no session.
    pub async fn open(mut connection: ClientConnection, snapshot: pb::LatestRef) -> Result<Self, CommandError> {
        let info = listings::server_info(&mut connection).await?;
        let of_family = |family: &str| {
            let plugins = info.plugins.iter();
            let plugins = plugins.filter(|plugin| plugin.extension_points.iter().any(|own| own == family));
            plugins.map(|plugin| plugin.name.clone()).collect()
        };
        let (filters, admitters) = (of_family("filter"), of_family("admit"));
        let request = pb::OpenSessionRequest {
            against: Some(against(snapshot.clone())),
            ..pb::OpenSessionRequest::default()
        };
        let (session, metadata) = match connection.decisions.open_session(request).await {
            Ok(reply) => {
                let reply = reply.into_inner();
                (Some(reply.session), reply.metadata)
            }
            // Without a place for a session, or the right to open one, the questions are put to the newest state.
            Err(status) if matches!(status.code(), Code::ResourceExhausted | Code::PermissionDenied) => (None, None),
            Err(status) => return Err(status.into()),
        };
        Ok(PinnedClient {
            connection,
            latest: snapshot,
            session,
            copy: None,
            applied_changes: 0,
            now: None,
            metadata,
            unevaluated: UnevaluatedSet::default(),
            with: Vec::new(),
            filter_plugins: filters,
            admit_plugins: admitters,
            document: None,
        })
    }

    /// Client that puts its queries to a copy of records, under the same policy and at the same time. Each record of `changed`
    /// replaces the one of its name. `None`: the server does not show the policy or its reservations.
    pub async fn on_copy(&mut self, known: &KnownRecords, changed: pb::Cluster) -> Option<Self> {
        let policy_document = self.policy_document().await?;
        let reserved = what_if::reserved_jobs(self.connection.clone()).await.ok()?;
        let mut cluster = what_if::copied_cluster(known.clone(), &reserved);
        what_if::lay_over(&mut cluster, changed);
        Some(Self {
            connection: self.connection.clone(),
            latest: self.latest.clone(),
            session: None,
            copy: Some(Box::new(pb::InlineSnapshot {
                cluster: Some(cluster),
                policy_document,
                profile: self.latest.profile.clone(),
                ..pb::InlineSnapshot::default()
            })),
            applied_changes: 0,
            now: self.now,
            metadata: None,
            unevaluated: UnevaluatedSet::default(),
            with: Vec::new(),
            filter_plugins: Vec::new(),
            admit_plugins: Vec::new(),
            document: None,
        })
    }

    /// Tells the decisions the time since 1970, in whole seconds.
    pub fn set_time(&mut self, time: Duration) {
        let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
        self.now = Some(prost_types::Timestamp { seconds, nanos: 0 });
    }

    /// Closes the session. The lease ends a session that cannot be closed now.
    pub async fn close(&mut self) {
        if let Some(session) = self.session.take() {
            let request = pb::CloseSessionRequest { session };
            drop(self.connection.decisions.close_session(request).await);
        }
    }

    /// Active document of the policy with all defaults. `None`: the server does not show it.
    async fn policy_document(&mut self) -> Option<String> {
        if self.document.is_none() {
            let request = pb::GetPolicyRequest {
                name: self.metadata.as_ref()?.policy.clone(),
                version: self.metadata.as_ref()?.policy_version,
            };
            let reply = self.connection.policies.get_policy(request).await.ok()?.into_inner();
            self.document = Some(reply.policy?.effective_document);
        }
        self.document.clone()
    }

    /// Actions in the active document of the policy. `None`: it is not a document of Volcano, or the server does not show it.
    pub async fn policy_actions(&mut self) -> Option<Vec<String>> {
        let document = self.policy_document().await?;
        let compiled = compile(&document, &CompileOptions::default()).ok()?;
        let actions = compiled.policy.spec().actions.clone();
        (!actions.is_empty()).then_some(actions)
    }

    /// True if placements can be simulated.
    pub fn has_session(&self) -> bool {
        self.session.is_some()
    }

    fn evaluation_ref(&self) -> pb::EvaluationRef {
        let target = match (&self.copy, &self.session) {
            (Some(copy), _) => Target::Inline(copy.clone()),
            (None, Some(session)) => Target::Session(pb::SessionRef {
                id: session.clone(),
                after: self.applied_changes,
                ..pb::SessionRef::default()
            }),
            (None, None) => Target::Latest(self.latest.clone()),
        };
        pb::EvaluationRef {
            target: Some(target),
            now: self.now,
            ..pb::EvaluationRef::default()
        }
    }

    /// Records of the pinned state.
    pub async fn fetch_records(&mut self) -> Result<KnownRecords, CommandError> {
        Ok(KnownRecords {
            nodes: self.list::<pb::ListNodesRequest>().await?,
            queues: self.list_by_name::<pb::ListQueuesRequest>().await?,
            jobs: self.list_by_name::<pb::ListJobsRequest>().await?,
            tasks: self.list_by_name::<pb::ListTasksRequest>().await?,
            namespaces: self.list_namespaces().await?,
        })
    }

    async fn list_namespaces(&mut self) -> Result<Vec<pb::Namespace>, CommandError> {
        let rows = self.list::<pb::ListNamespacesRequest>().await?.into_iter();
        Ok(rows.filter_map(|status| status.namespace).collect())
    }

    async fn list<L: RecordListing>(&mut self) -> Result<Vec<L::Row>, CommandError> {
        let request = L::new(Some(self.evaluation_ref()), Vec::new());
        let mut page = listings::whole(&mut self.connection, request).await?;
        if self.metadata.is_none() {
            self.metadata = L::metadata(&page).cloned();
        }
        Ok(std::mem::take(L::rows(&mut page)))
    }

    async fn list_by_name<L: RecordListing>(&mut self) -> Result<BTreeMap<String, L::Row>, CommandError> {
        let rows = self.list::<L>().await?.into_iter();
        Ok(rows.filter_map(|row| Some((listings::name::<L>(&row)?, row))).collect())
    }

    /// Result of Filter for one task, by the policy's tiers.
    pub async fn filter(
        &mut self,
        task: &pb::Task,
        fit: pb::ResourceFit,
        detail: pb::FilterDetail,
    ) -> Result<pb::FilterItem, CommandError> {
        let request = pb::FilterRequest {
            against: Some(self.evaluation_ref()),
            tasks: vec![task.clone()],
            resource_fit: fit.into(),
            samples: Some(SAMPLES),
            detail: detail.into(),
            ..pb::FilterRequest::default()
        };
        let reply = self.connection.decisions.filter(request).await?.into_inner();
        self.unevaluated.add_metadata(reply.metadata.as_ref());
        first_item(reply.result.unwrap_or_default().items, "Filter")
    }

    /// Number of nodes that each filtering plugin of the policy rejects alone.
    pub async fn rejections_by_plugin(&mut self, task: &pb::Task) -> Result<Vec<(String, u64)>, CommandError> {
        let mut alone = Vec::new();
        for plugin in self.filter_plugins.clone() {
            let request = pb::FilterRequest {
                against: Some(self.evaluation_ref()),
                tasks: vec![task.clone()],
                plugins: vec![plugin.clone()],
                resource_fit: pb::ResourceFit::None.into(),
                detail: pb::FilterDetail::Counts.into(),
                ..pb::FilterRequest::default()
            };
            match self.connection.decisions.filter(request).await {
                Ok(reply) => {
                    let item = first_item(reply.into_inner().result.unwrap_or_default().items, "Filter")?;
                    let refused = item.rejections.iter().map(|one| u64::from(one.count)).sum();
                    alone.push((plugin, refused));
                }
                Err(status) if not_in_policy(&status) => {}
                Err(status) => return Err(status.into()),
            }
        }
        Ok(alone)
    }

    /// Best nodes for one task, with the parts of their scores and the rejections of the others.
    pub async fn score(
        &mut self,
        task: &pb::Task,
        fit: pb::ResourceFit,
        limit: u32,
    ) -> Result<pb::ScoreItem, CommandError> {
        let request = pb::ScoreRequest {
            against: Some(self.evaluation_ref()),
            tasks: vec![task.clone()],
            resource_fit: fit.into(),
            with_filter: true,
            with_parts: true,
            limit: Some(limit),
            samples: Some(1),
            filter_detail: pb::FilterDetail::Samples.into(),
            ..pb::ScoreRequest::default()
        };
        let reply = self.connection.decisions.score(request).await?.into_inner();
        self.unevaluated.add_metadata(reply.metadata.as_ref());
        first_item(reply.result.unwrap_or_default().items, "Score")
    }

    /// Previews the placement of one task on idle resources. The query leaves out the task's job, so quotas do not
    /// apply.
    pub async fn preview(&mut self, task: &pb::Task) -> Result<pb::PlacedGroup, CommandError> {
        let alone = pb::Task {
            job: String::new(),
            ..task.clone()
        };
        let request = pb::PlaceRequest {
            groups: vec![pb::TaskGroup {
                task: Some(alone),
                ..pb::TaskGroup::default()
            }],
            min_available: Some(0),
            idle_only: true,
            ..pb::PlaceRequest::default()
        };
        first_item(self.place(request).await?.groups, "Place")
    }

    /// Result of Place in the pinned state. With the effect on the session, the queries after it see a placement of enough
    /// tasks.
    pub async fn place(&mut self, request: pb::PlaceRequest) -> Result<pb::PlaceResult, CommandError> {
        let request = pb::PlaceRequest {
            against: Some(self.evaluation_ref()),
            samples: Some(0),
            ..request
        };
        if request.effect() == pb::PlaceEffect::Session {
            self.applied_changes = self.applied_changes.saturating_add(1);
        }
        let reply = self.connection.decisions.place(request).await?.into_inner();
        self.unevaluated.add_metadata(reply.metadata.as_ref());
        Ok(reply.result.unwrap_or_default())
    }

    /// Victims among candidates, one item per group.
    pub async fn victims(
        &mut self,
        kind: pb::VictimKind,
        groups: Vec<pb::VictimGroup>,
    ) -> Result<Vec<pb::VictimItem>, CommandError> {
        let request = pb::SelectVictimsRequest {
            against: Some(self.evaluation_ref()),
            kind: kind.into(),
            groups,
            ..pb::SelectVictimsRequest::default()
        };
        let reply = self.connection.decisions.select_victims(request).await?.into_inner();
        self.unevaluated.add_metadata(reply.metadata.as_ref());
        Ok(reply.result.unwrap_or_default().items)
    }

    /// Verdicts of Admit, each after the permits before it. The server keeps nothing of them.
    pub async fn admit(
        &mut self,
        items: Vec<pb::admit_subject::Subject>,
        plugins: Vec<String>,
    ) -> Result<Vec<pb::AdmitItem>, CommandError> {
        let subject = |subject| pb::AdmitSubject {
            subject: Some(subject),
            ..pb::AdmitSubject::default()
        };
        let request = pb::AdmitRequest {
            against: Some(self.evaluation_ref()),
            mode: pb::AdmitMode::Check.into(),
            items: items.into_iter().map(subject).collect(),
            plugins,
            ..pb::AdmitRequest::default()
        };
        let reply = self.connection.decisions.admit(request).await?.into_inner();
        self.unevaluated.add_metadata(reply.metadata.as_ref());
        Ok(reply.result.unwrap_or_default().items)
    }

    /// Vote of each admitting plugin of the policy alone.
    pub async fn plugin_votes(
        &mut self,
        subject: &pb::admit_subject::Subject,
    ) -> Result<Vec<pb::AdmitVote>, CommandError> {
        let mut votes = Vec::new();
        for plugin in self.admit_plugins.clone() {
            match self.admit(vec![subject.clone()], vec![plugin]).await {
                Ok(items) => votes.extend(items.into_iter().flat_map(|item| item.votes)),
                Err(CommandError::Call(status)) if not_in_policy(&status) => {}
                Err(failure) => return Err(failure),
            }
        }
        Ok(votes)
    }

    /// Ranks of all queues, of `jobs` and of `tasks`, in the order of service.
    pub async fn order(&mut self, jobs: Vec<String>, tasks: Vec<String>) -> Result<pb::OrderResult, CommandError> {
        let set = |names: Vec<String>| (!names.is_empty()).then_some(pb::NameSet { names });
        let request = pb::OrderRequest {
            against: Some(self.evaluation_ref()),
            queues: Some(pb::NameSet::default()),
            jobs: set(jobs),
            tasks: set(tasks),
            ..pb::OrderRequest::default()
        };
        let reply = self.connection.decisions.order(request).await?.into_inner();
        self.unevaluated.add_metadata(reply.metadata.as_ref());
        Ok(reply.result.unwrap_or_default())
    }
}

/// True if the server serves a plugin that the policy does not have.
fn not_in_policy(status: &tonic::Status) -> bool {
    matches!(status.code(), Code::NotFound | Code::Unimplemented)
}

fn first_item<T>(items: Vec<T>, what: &str) -> Result<T, CommandError> {
    let first = items.into_iter().next();
    first.ok_or_else(|| CommandError::message(format!("error: the server answered nothing to {what}")))
}
