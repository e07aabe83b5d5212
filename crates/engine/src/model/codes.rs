//! Codes of errors, warnings and diagnostics, each declared once. A code begins with its subject, such as `JOB_UNKNOWN`.
//! Server, state, engine and the fronts of extenders use this list, and `docs/troubleshooting.md` is written from it.

use std::fmt;

/// Class of a code, which decides the gRPC status of a call that fails with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorClass {
    /// `INVALID_ARGUMENT`: the request is wrong, whatever the state is.
    Invalid,
    /// `NOT_FOUND`: the request names something that does not exist.
    NotFound,
    /// `FAILED_PRECONDITION`: the state does not permit the request now.
    Precondition,
    /// `ABORTED`: another caller was first.
    Aborted,
    /// `RESOURCE_EXHAUSTED`: a limit is reached.
    Exhausted,
    /// `UNIMPLEMENTED`: this server does not serve it.
    Unserved,
    /// `UNAVAILABLE`: another server, or a later call, may succeed.
    Unavailable,
    /// `UNAUTHENTICATED`: the caller is unknown.
    Unauthenticated,
    /// `PERMISSION_DENIED`: the caller may not do this.
    PermissionDenied,
    /// `CANCELLED`: the caller ended the call.
    Cancelled,
    /// `DEADLINE_EXCEEDED`: the caller's deadline passed.
    DeadlineExceeded,
    /// `INTERNAL`: an error of the server itself.
    Internal,
}

/// Declares the codes: variant, name, class, cause and remedy, by section of `docs/troubleshooting.md`.
macro_rules! codes {
    ($($section:literal { $($code:ident = $name:literal, $class:ident, $cause:literal, $remedy:literal;)* })*) => {
        /// Code of an error, a warning or a diagnostic.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum ErrorCode {
            $($(#[doc = concat!("`", $name, "`")] $code,)*)*
        }

        impl ErrorCode {
            /// All codes, by section of the page.
            pub const SECTIONS: &[(&str, &[Self])] = &[$(($section, &[$(Self::$code,)*]),)*];

            const fn texts(self) -> (&'static str, ErrorClass, &'static str, &'static str) {
                match self {
                    $($(Self::$code => ($name, ErrorClass::$class, $cause, $remedy),)*)*
                }
            }
        }
    };
}

impl ErrorCode {
    /// Code of a name on the wire; `None`: a later version's.
    pub fn from_name(name: &str) -> Option<Self> {
        let mut all = Self::SECTIONS.iter().flat_map(|(_, codes)| codes.iter().copied());
        all.find(|code| code.name() == name)
    }

    /// Name on the wire, such as `JOB_UNKNOWN`.
    pub const fn name(self) -> &'static str {
        self.texts().0
    }

    /// Class of the code.
    pub const fn class(self) -> ErrorClass {
        self.texts().1
    }

    /// Cause, as a cell of the page has it.
    pub const fn cause(self) -> &'static str {
        self.texts().2
    }

    /// Remedy, as a cell of the page has it.
    pub const fn remedy(self) -> &'static str {
        self.texts().3
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

codes! {
    "The call and the server" {
        Overloaded = "OVERLOADED", Exhausted, "a limit on calls in progress is reached: their number (`calls`, `streams`, `worker_queue`, `disk_waits`), time (`worker_wait_ms`) or bytes; the message names it", "retry after `RetryInfo`; use fewer callers, or raise the limit if it is a setting (and add cores)";
        IdentityMissing = "IDENTITY_MISSING", Unauthenticated, "the caller has neither a token nor a certificate, or an unknown token ([roles.md](tasks/roles.md))", "run `pumice whoami`; use a token or a certificate of an identity in `identities_file`";
        IdentityUnverified = "IDENTITY_UNVERIFIED", Unavailable, "the API server did not verify the service-account token: it is unreachable, or the server's account may not create `tokenreviews`", "see the reason in the server's log; apply `deploy/kustomize/live/tokens`, or correct `kubeconfig`";
        RoleMissing = "ROLE_MISSING", PermissionDenied, "the caller's identity lacks a role for the method, or may not write the source", "use another identity, or change `roles` or `sources` in `identities_file`";
        LimitExceeded = "LIMIT_EXCEEDED", Exhausted, "the limit in the message is reached: a list, a text, a number or a request is too long", "split the request; fewer tasks, nodes or names; raise the limit if it is [a setting](settings.md)";
        EncodingUnsupported = "ENCODING_UNSUPPORTED", Unserved, "the call's `grpc-encoding` (JSON: `Content-Encoding`) is neither `identity` nor `gzip`", "send requests uncompressed or with gzip";
        RequestAbandoned = "REQUEST_ABANDONED", Cancelled, "the caller ended the call while it sent the request", "nothing to do";
        RequestMalformed = "REQUEST_MALFORMED", Invalid, "the bytes are not a message of this call: cut off, invalid UTF-8, two messages, a compression flag without an encoding, broken gzip, or JSON with an unknown field or a wrong value", "correct the field in the message; compare the client's protocol files with the server's";
        RequestTooSlow = "REQUEST_TOO_SLOW", Exhausted, "the request did not arrive within `request_body_ms`", "check the network; send smaller requests";
        RequestTooLarge = "REQUEST_TOO_LARGE", Exhausted, "the message exceeds `request_bytes`", "split it: a full sync into parts, tasks into several calls";
        RequestTooManyParts = "REQUEST_TOO_MANY_PARTS", Exhausted, "a message with millions of tiny fields would take too much memory", "split it";
        ShuttingDown = "SHUTTING_DOWN", Unavailable, "the server is draining", "use another replica, or retry later";
        Internal = "INTERNAL", Internal, "an error of the server", "report the log line at level `error`";
        StoreFailed = "STORE_FAILED", Unavailable, "a durable write failed; the call had no effect on the running server ([operations.md](operations.md#what-a-restart-keeps))", "check the disk and the file; the message has the system's error or the remedy";
        OutcomeUnknown = "OUTCOME_UNKNOWN", Unavailable, "a shared store did not say whether it has the change. The change takes effect if its log has it", "repeat the call with the same `key` (in the error's metadata: job and attempt, commit key, session, policy), or list what it would have made";
        Cancelled = "CANCELLED", Cancelled, "the caller ended the call", "nothing to do";
        DeadlineExceeded = "DEADLINE_EXCEEDED", DeadlineExceeded, "the caller's deadline passed", "give the call more time, or split it";
    }
    "Requests" {
        QuantityInvalid = "QUANTITY_INVALID", Invalid, "not a Kubernetes quantity, such as `4x`", "write it like `500m`, `2` or `16Gi`";
        QuantityNegative = "QUANTITY_NEGATIVE", Invalid, "an amount below zero; only `compatibility: upstream` accepts one, in limits of queues and minimums of jobs", "use 0 or more; for no limit, leave the resource out";
        QuantityTooLarge = "QUANTITY_TOO_LARGE", Invalid, "more than 64 bits of milli-units or bytes", "check the unit";
        ResourceNotCounted = "RESOURCE_NOT_COUNTED", Invalid, "warning: schedulers ignore a resource of this name", "check the spelling";
        TaskNeverPreempts = "TASK_NEVER_PREEMPTS", Precondition, "warning of SelectVictims: `preemptionPolicy` of the pod, or of its priority class, is `Never`", "the pod waits for idle resources; give it another class if it may preempt";
        ResourceIgnored = "RESOURCE_IGNORED", Invalid, "warning: this amount has no meaning here, such as `pods` in requests", "leave it out";
        DevicesInvalid = "DEVICES_INVALID", Invalid, "a number of devices, thousandths or assigned devices that no node can have", "use a value from the message";
        ConstraintInvalid = "CONSTRAINT_INVALID", Invalid, "an unknown word in a topology spread constraint", "use a word from the message";
        EnumInvalid = "ENUM_INVALID", Invalid, "a number that is not a value of this field", "use the names of the protocol files";
        TimeInvalid = "TIME_INVALID", Invalid, "seconds or nanoseconds out of range", "use seconds and nanoseconds of the calendar";
        DurationInvalid = "DURATION_INVALID", Invalid, "seconds or nanoseconds out of range", "use a duration that the protocol files allow";
        AnnotationInvalid = "ANNOTATION_INVALID", Invalid, "an annotation of a task or a queue is unreadable", "see the format in [policy.md](policy.md)";
        NameMissing = "NAME_MISSING", Invalid, "a record or field without a name", "give it a name";
        NameTooLong = "NAME_TOO_LONG", Invalid, "a name longer than `name_bytes`", "shorten the name";
        FieldsIgnored = "FIELDS_IGNORED", Invalid, "warning: the request has a name and other fields; the server uses the stored record", "send `requests`, or the name only";
        TaintIgnored = "TAINT_IGNORED", Invalid, "warning: a taint with an unknown effect is ignored", "check the spelling of the effect";
        TaskPendingOnNode = "TASK_PENDING_ON_NODE", Invalid, "warning: a pending task with a node does not hold resources there", "give it a status";
        RequestsMissing = "REQUESTS_MISSING", Invalid, "a task has neither requests nor a name", "give one of the two";
        TaskMissing = "TASK_MISSING", Invalid, "a group has neither a task nor names", "add one of the two";
        TaskUnknown = "TASK_UNKNOWN", NotFound, "no task of that name is stored; for a change of a session a warning", "load it, or check the name";
        UidMismatch = "UID_MISMATCH", NotFound, "the stored record of that name has another uid", "read the record again; the caller's copy is old";
        AheadWithLimit = "AHEAD_WITH_LIMIT", Invalid, "`ahead` of Score is combined with `limit`: the best nodes change after each task", "use only one of the two fields";
        RecordDuplicate = "RECORD_DUPLICATE", Invalid, "an inline cluster names one record twice", "remove one of the two";
        PluginUnknown = "PLUGIN_UNKNOWN", NotFound, "neither the policy nor this server has the plugin; the message suggests a similar name", "correct the name; [GetPolicy](reference/rpc.md#getpolicy) shows the plugins of a policy";
        PluginNotServed = "PLUGIN_NOT_SERVED", Unserved, "`plugins` of the request names a plugin of the policy that this server does not implement", "leave it to your scheduler";
        ScoreOutOfRange = "SCORE_OUT_OF_RANGE", Precondition, "the weights of the policy make a score overflow, or preferred terms of the pod have negative weights", "use smaller weights of at least 0";
        PreferredTermInvalid = "PREFERRED_TERM_INVALID", Invalid, "a preferred term of the pod's node affinity has an unknown operator, or an invalid key or value of a label", "correct the term, or give it weight 0";
        PreScoreMissing = "PRE_SCORE_MISSING", Precondition, "the profile enables a plugin's score without its `preScore`; kube-scheduler would not score either", "enable the plugin at `multiPoint`";
        PluginStateMissing = "PLUGIN_STATE_MISSING", Unserved, "the plugin needs accounts, which an inline cluster does not have", "use the latest snapshot or a session";
        NamespaceLabelsUnknown = "NAMESPACE_LABELS_UNKNOWN", Precondition, "a running pod's anti-affinity matches this pod's labels and selects namespaces by labels, and the labels of this namespace are unknown. As a warning of Score: the score leaves out a preferred term", "send the namespace (`kubectl get namespaces -o json` in a dump), or list the namespaces in the term";
        LabelsMissing = "LABELS_MISSING", Precondition, "the plugin reads labels that the server dropped, because no policy read them when the records arrived", "wait for the next full sync, which the server has requested; load a file again";
        NodeTermInvalid = "NODE_TERM_INVALID", Invalid, "a required term of the pod's node affinity has an unknown operator, or an invalid key or value of a label, so it matches no nodes", "correct the term";
        ReferencePanics = "REFERENCE_PANICS", Precondition, "under `compatibility: upstream`, the reference crashes on this input", "correct the input, or use `corrected`";
    }
    "Nodes" {
        NodeUnknown = "NODE_UNKNOWN", NotFound, "no source has sent a node of that name", "load it, or retry after the next batch of its source";
        NodeMissing = "NODE_MISSING", Invalid, "the request needs a node and does not have one", "add it";
        NodeDuplicate = "NODE_DUPLICATE", Invalid, "a node set has a node twice", "remove one";
        NodeSetAmbiguous = "NODE_SET_AMBIGUOUS", Invalid, "more than one of names, slots, bitmap", "use one";
        NodeTableMissing = "NODE_TABLE_MISSING", Invalid, "slots without `against.nodeTable`", "add the version of their node table";
        NodeTableChanged = "NODE_TABLE_CHANGED", Precondition, "slots of another epoch or generation", "call `GetNodeTable` from slot 0, then retry";
    }
    "Evaluation references" {
        PolicyUnknown = "POLICY_UNKNOWN", NotFound, "no policy has that name", "`pumice policy history --name ''` lists the names";
        ProfileUnknown = "PROFILE_UNKNOWN", NotFound, "the policy has several profiles, and the request has none of their names", "name a profile (`--policy-profile`)";
        EpochChanged = "EPOCH_CHANGED", Precondition, "the server has restarted since it returned that revision; as a resync: a delta has a higher `sourceEpoch` than the last batch", "start over: full sync, node table, sessions ([operations.md](operations.md#what-a-restart-keeps))";
        RevisionNotReached = "REVISION_NOT_REACHED", Precondition, "the revision was not visible within `maxWait`", "wait longer, or check the source";
        EvaluationRefInvalid = "EVALUATION_REF_INVALID", Invalid, "a session opened against a session", "use `latest` or `inline`";
    }
    "Victims, placing, admission, order" {
        VictimKindMissing = "VICTIM_KIND_MISSING", Invalid, "SelectVictims without a kind", "add the kind";
        PreemptorMissing = "PREEMPTOR_MISSING", Invalid, "a group of SelectVictims without a preemptor", "add the preemptor";
        PreemptorUnneeded = "PREEMPTOR_UNNEEDED", Invalid, "a group of SelectVictims of kind SHUFFLE with a preemptor or a node: it makes room for no task", "leave the field out";
        GroupsMissing = "GROUPS_MISSING", Invalid, "the request has nothing to place", "add a group";
        SubjectMissing = "SUBJECT_MISSING", Invalid, "an item of Admit with neither job nor task", "add one of the two";
        NamesMissing = "NAMES_MISSING", Invalid, "effects SESSION and COMMIT need stored tasks", "add their names, or use PREVIEW";
        CommitKeyMissing = "COMMIT_KEY_MISSING", Invalid, "effect COMMIT without a `commit_key`", "use a unique key";
        CommitKeyUnused = "COMMIT_KEY_UNUSED", Invalid, "a `commit_key` with another effect than COMMIT", "leave the key out";
        CommitKeyReused = "COMMIT_KEY_REUSED", Precondition, "another request committed tasks under this `commit_key`", "use a new key for each request; a repeated call has the same tasks";
        CommitAgainst = "COMMIT_AGAINST", Invalid, "effect COMMIT against a session or an inline cluster", "leave `against` out, or use `latest`";
        PlacementConflict = "PLACEMENT_CONFLICT", Aborted, "other callers changed the selected nodes in each attempt", "send the call again; use one replica for placements";
        CountMismatch = "COUNT_MISMATCH", Invalid, "`count` and the number of names differ", "leave `count` out";
        TasksDiffer = "TASKS_DIFFER", Precondition, "the tasks of a group differ", "use one group per kind of task";
        TaskDuplicate = "TASK_DUPLICATE", Precondition, "a group names a task twice", "name it once";
        TaskMismatch = "TASK_MISMATCH", Invalid, "the task of a group differs from the stored tasks", "leave the task out, or correct it";
        TaskNotPending = "TASK_NOT_PENDING", Precondition, "the task has a node", "leave it out";
        TaskGated = "TASK_GATED", Precondition, "the task has a scheduling gate", "leave it out";
        JobMismatch = "JOB_MISMATCH", Invalid, "the task belongs to another job, or the job differs from the stored job", "use one group per job";
        JobNotStored = "JOB_NOT_STORED", Invalid, "the job is not stored, and the request does not have it completely", "load it, or send it completely with PREVIEW or CHECK";
        JobUnknown = "JOB_UNKNOWN", NotFound, "no job of that name is stored", "load it, or correct the name";
        QueueUnknown = "QUEUE_UNKNOWN", NotFound, "no queue of that name is stored", "create the queue, and load again";
        TaskCheckOnly = "TASK_CHECK_ONLY", Invalid, "Admit has a task and a mode other than CHECK", "use Admit for its job";
        SessionMissing = "SESSION_MISSING", Invalid, "the request needs a session, such as Admit with TENTATIVE, or the session of a vc-scheduler was not opened", "open a session, and add its id; for vc-scheduler set `onSessionOpenVerb`";
        ConfirmInline = "CONFIRM_INLINE", Invalid, "CONFIRM writes to the shared state and cannot use an inline cluster", "use `latest` or a session";
        HierarchyTooDeep = "HIERARCHY_TOO_DEEP", Invalid, "a queue's `volcano.sh/hierarchy` has too many levels", "correct that queue: [policy.md](policy.md#drf)";
        HierarchyWeightsCount = "HIERARCHY_WEIGHTS_COUNT", Invalid, "`volcano.sh/hierarchy-weights` has another number of parts than `volcano.sh/hierarchy`", "correct that queue: [policy.md](policy.md#drf)";
        HierarchyWeightInvalid = "HIERARCHY_WEIGHT_INVALID", Invalid, "a part of `volcano.sh/hierarchy-weights` is not a positive number", "correct that queue: [policy.md](policy.md#drf)";
        HierarchyWeightsConflict = "HIERARCHY_WEIGHTS_CONFLICT", Invalid, "a queue gives another weight to a level than an older queue", "correct that queue: [policy.md](policy.md#drf)";
        HierarchyInnerAndLeaf = "HIERARCHY_INNER_AND_LEAF", Invalid, "a queue is at a place of `volcano.sh/hierarchy` that has queues below it", "correct that queue: [policy.md](policy.md#drf)";
        QueueParentUnknown = "QUEUE_PARENT_UNKNOWN", Invalid, "under `capacity` with a tree: the parent of a queue does not exist", "create the parent, or set another parent";
        QueueParentCycle = "QUEUE_PARENT_CYCLE", Invalid, "under `capacity` with a tree: the parents of a queue form a cycle", "set another parent";
        QueueWeightInvalid = "QUEUE_WEIGHT_INVALID", Invalid, "the weight of a queue is below 1, and `proportion` divides by it", "set `spec.weight` to 1 or more, or leave it out";
        QuotaImpossible = "QUOTA_IMPOSSIBLE", Invalid, "warning: a queue has more in `guarantee` or `deserved` than its `capability`, children have more than their parent, or guarantees exceed the cluster", "lower the amount that the message names, or raise the limit";
        CardQuotaInvalid = "CARD_QUOTA_INVALID", Invalid, "a queue's `volcano.sh/card.quota` is unreadable: the last good quota applies, and the queue takes no new jobs (`QueueInvalid`). Without a good quota the queue may not hold cards", "correct that queue: [policy.md](policy.md#capacity-card)";
    }
    "Sessions" {
        SessionUnknown = "SESSION_UNKNOWN", NotFound, "the session was never opened here, ended long ago, or ended with a restart of the server", "open a session. A session exists on one replica only; `server` in the error names it if known";
        SessionExpired = "SESSION_EXPIRED", Precondition, "the session has ended: by its lease, its age, CloseSession or CommitSession", "open a new session; changes that were not committed are lost";
        SessionBusy = "SESSION_BUSY", Aborted, "another call is changing the session", "make one changing call at a time";
        SequenceGap = "SEQUENCE_GAP", Precondition, "changes are missing before these", "send from `applied_through` + 1";
        SequenceMismatch = "SEQUENCE_MISMATCH", Precondition, "the session is ahead of this request; or the request has no changes, and its `after` is not the session's number", "read `applied_through`, retry";
        ChangeUnknown = "CHANGE_UNKNOWN", Invalid, "the kind of change is unknown to the server", "compare the versions of client and server";
        ChangeDoesNotFit = "CHANGE_DOES_NOT_FIT", Precondition, "warning: a change does not fit the status of its task or job, or its node does not exist; it has no effect ([sessions.md](concepts/sessions.md#changes-and-their-effects))", "check the caller's bookkeeping";
        SavepointUnknown = "SAVEPOINT_UNKNOWN", NotFound, "a change names an unknown savepoint", "check the name";
        ChangeUpstreamOnly = "CHANGE_UPSTREAM_ONLY", Unserved, "the change exists under `compatibility: upstream` only", "leave the change out";
        PlaceRejected = "PLACE_REJECTED", Precondition, "under `compatibility: upstream`: the node does not exist or already has the task; the task is Pending again, as in Volcano", "check the caller's bookkeeping";
        SessionInline = "SESSION_INLINE", Invalid, "CommitSession of a session on an inline cluster, which has no shared state", "close it";
        JobDuplicate = "JOB_DUPLICATE", Invalid, "CommitSession names a job twice", "list it once";
        SelectionMissing = "SELECTION_MISSING", Invalid, "ReleaseAssumptions has neither a session nor tasks", "add one of the two";
        BatchWithInline = "BATCH_WITH_INLINE", Invalid, "OpenSession has a batch and an inline cluster", "send one of the two";
    }
    "State" {
        ResyncNeeded = "RESYNC_NEEDED", Precondition, "the server did not apply the batch of OpenSession; the details have the outcome", "send a full sync";
        Gap = "GAP", Invalid, "resync: a batch is missing before this one", "send a full sync with a number above `position.sequence` ([wire.md](reference/wire.md#after-a-gap))";
        Fenced = "FENCED", Invalid, "resync: the source has sent a higher `sourceEpoch` since", "stop the older process; if a newer process does not run, run `pumice state forget SOURCE`";
        SourceEpochTooHigh = "SOURCE_EPOCH_TOO_HIGH", Invalid, "`sourceEpoch` is so far ahead that it would fence off every later client of the source", "increase it by one, or use the time in nanoseconds since 1970; check the clocks";
        StoreStale = "STORE_STALE", Unavailable, "warning of a response, or with `store_stale_ms` a rejection (UNAVAILABLE): this server cannot confirm that it has the newest entry of its shared store, so promises of other servers may be missing", "the line `store` of `/readyz?verbose` says since when and why; see [replicas.md](tasks/replicas.md#what-each-failure-of-the-store-looks-like)";
        SourceStale = "SOURCE_STALE", Precondition, "warning of a response (`metadata.warnings`): a source was silent for longer than `source_stale_ms`, and its records may be old", "check its process and `/readyz?verbose`; the warning ends with the next batch";
        SourceUnknown = "SOURCE_UNKNOWN", NotFound, "no source of that name is known; as a resync: a delta of a source that has sent no full sync since the server started", "`pumice state show` lists the sources; send a full sync";
        LabelsNeeded = "LABELS_NEEDED", Invalid, "resync: a policy reads labels that the server dropped from the source's records, because earlier policies did not read them", "send a full sync; the clients do so by themselves";
        ReleaseChanged = "RELEASE_CHANGED", Invalid, "resync: amounts of the source's pods were derived by the rules of another release than the policies in force follow", "derive the pods by `resync.pod_release` and send a full sync; the clients do so by themselves, and a file has to be loaded again";
        ResourcesNeeded = "RESOURCES_NEEDED", Invalid, "resync: a node or queue has a resource for whose name there was no place when the source's records were read", "send a full sync; the clients do so by themselves";
        BatchMissing = "BATCH_MISSING", Invalid, "the batch is missing", "add it";
        BatchInvalid = "BATCH_INVALID", Invalid, "the batch contradicts itself", "see the message";
        SourceInvalid = "SOURCE_INVALID", Invalid, "the source of the batch has no name, or one that is not allowed", "see the message";
        ObjectUnreadable = "OBJECT_UNREADABLE", Invalid, "an object of Kubernetes is unreadable; the last good record of its name still applies", "correct the field of the object that the problem names";
        ObjectAndFields = "OBJECT_AND_FIELDS", Invalid, "a record has an object and fields that contradict or repeat it", "leave out the fields that the object has";
        KindNotRead = "KIND_NOT_READ", Invalid, "warning: Pumice does not use this kind of object", "leave the object out";
        KindInvalid = "KIND_INVALID", Invalid, "`remove.objects` has a kind that Pumice does not use", "use Node, Pod, Namespace, Queue, PodGroup or PriorityClass";
        UnreadableRecord = "UNREADABLE_RECORD", Invalid, "the source could not read the record; the last good record still applies", "correct the object in the message";
        RecordNotCounted = "RECORD_NOT_COUNTED", Invalid, "warning: a record was rejected, and an earlier good record does not exist", "correct it; if it is a running task, its node takes no new tasks until then";
        TaskUnreadable = "TASK_UNREADABLE", Precondition, "mark on a node: the amounts of one of its tasks are unknown, so it takes no new tasks", "correct the task's record, or remove it";
        NameInvalid = "NAME_INVALID", Invalid, "an unreadable record has no name, or a name longer than `name_bytes`", "send the name of the record";
        SourceActive = "SOURCE_ACTIVE", Precondition, "the source in ForgetSource has sent a batch within `source_stale_ms`; a FILE source was loaded within that time", "stop the source first, or use `force`";
        ResourceUnknown = "RESOURCE_UNKNOWN", NotFound, "the resource in ForgetResource is not in any record, or is already forgotten", "nothing to do";
        ResourceInUse = "RESOURCE_IN_USE", Precondition, "the resource in ForgetResource is in use, or is cpu, memory or pods", "change or remove the records that the message names";
        ResourceForgotten = "RESOURCE_FORGOTTEN", Aborted, "a resource name of the batch was forgotten while the server read the batch", "send the batch again";
        RecordNotOwned = "RECORD_NOT_OWNED", Precondition, "another source owns the record; the server rejected it and applied the other records", "let one source own it: `pumice state show nodes` (`queues`, …) lists the owners";
        ProblemsOmitted = "PROBLEMS_OMITTED", Exhausted, "the list of rejected records is cut; the message has the number of omitted records", "correct the first ones";
    }
    "Extender protocols" {
        BodyUnreadable = "BODY_UNREADABLE", Invalid, "the body does not have the format of kube-scheduler", "set `urlPrefix` and verbs as in [extender.md](guides/extender.md)";
        NodesMissing = "NODES_MISSING", Invalid, "the body has no nodes", "set `urlPrefix` and verbs as in [extender.md](guides/extender.md)";
        PodUnnamed = "POD_UNNAMED", Invalid, "the pod of the body has no name", "set `urlPrefix` and verbs as in [extender.md](guides/extender.md)";
        PodUnreadable = "POD_UNREADABLE", Invalid, "a field of the pod is unreadable; the sentence names it", "correct the pod";
        PodUnknown = "POD_UNKNOWN", Precondition, "no source has reported this incarnation of the pod within `extender_wait_ms`", "add a source of pods, such as the server's own watch or `pumice state sync`; kube-scheduler retries";
        BindUnreadable = "BIND_UNREADABLE", Invalid, "a field of a bind is not the name of an object; the sentence names it", "set `bindVerb` as in [extender.md](guides/extender.md#the-verb-bind)";
        BindOff = "BIND_OFF", Precondition, "binding is switched off in the server", "set `extender_bind: true` with `state: kubernetes`, or remove `bindVerb`";
        BindRejected = "BIND_REJECTED", Precondition, "the policy no longer accepts the pod on that node; the sentence has the reason", "nothing to do: kube-scheduler retries";
        BindRefused = "BIND_REFUSED", Precondition, "the API server rejected the binding; its message follows", "grant `create` on `pods/binding`; otherwise nothing, kube-scheduler retries";
        BindUnknown = "BIND_UNKNOWN", Unavailable, "the API server did not respond, so the pod may be bound or not", "follow the sentence; kube-scheduler retries";
        BindLate = "BIND_LATE", Precondition, "the pod is on another node, or has ended", "nothing to do: kube-scheduler gets the change from its own watch";
        SessionPoisoned = "SESSION_POISONED", Precondition, "the session of a vc-scheduler could not be opened for the reason in the sentence", "correct the reason; the scheduler opens the next session by itself";
        VictimsNotEvaluated = "VICTIMS_NOT_EVALUATED", Precondition, "the policy cannot evaluate kube-scheduler's victims; the sentence has the reason", "correct the reason";
    }
    "Diagnostics of policies" {
        PolicyRejected = "POLICY_REJECTED", Invalid, "the document has an error; the details have the report", "see the diagnostics: `pumice policy check FILE`";
        DiagnosticsOmitted = "DIAGNOSTICS_OMITTED", Invalid, "the list of diagnostics is cut", "correct the first ones";
        PolicyNameInvalid = "POLICY_NAME_INVALID", Invalid, "the name is not 1 to 63 of a–z, 0–9 and `-`", "use another name";
        VersionMismatch = "VERSION_MISMATCH", Aborted, "another version than `expectedVersion` is active", "read it, merge, and push again";
        VersionUnknown = "VERSION_UNKNOWN", NotFound, "the history does not have that version", "`pumice policy history`";
        CompatibilityUnknown = "COMPATIBILITY_UNKNOWN", Invalid, "no compatibility has this name", "use one that the message lists";
        YamlSyntax = "YAML_SYNTAX", Invalid, "the text is not YAML 1.1", "see the line and column";
        YamlAlias = "YAML_ALIAS", Invalid, "an alias has no anchor, or is inside the value of its own anchor", "see the line and column";
        YamlMerge = "YAML_MERGE", Invalid, "the value of a merge key is neither a map nor a list of maps", "see the line and column";
        YamlTag = "YAML_TAG", Invalid, "the text does not match its tag", "see the line and column";
        YamlKey = "YAML_KEY", Invalid, "the key of a map is a list or a map", "see the line and column";
        YamlLimit = "YAML_LIMIT", Exhausted, "the document is larger, deeper or more repetitive than `policy_bytes`, `policy_depth`, `policy_nodes`, `policy_reads`, `policy_read_bytes`", "shorten the document";
        TypeInvalid = "TYPE_INVALID", Invalid, "the value has another type than the field", "use the type in the message";
        ActionOrder = "ACTION_ORDER", Invalid, "`preempt` or `reclaim` is listed before `allocate` or without it; in Volcano, the tasks for which others are evicted then wait forever", "put `allocate` first";
        ActionsMissing = "ACTIONS_MISSING", Invalid, "`actions` is empty", "name the actions, such as `enqueue, allocate`";
        ActionUnknown = "ACTION_UNKNOWN", Invalid, "Volcano does not have the action", "correct the name; remove an action of your own fork";
        ActionDuplicate = "ACTION_DUPLICATE", Invalid, "an action is listed twice", "remove one";
        PluginsConflict = "PLUGINS_CONFLICT", Invalid, "`proportion` and `drf` with hierarchy are in one tier, which Volcano rejects as well", "choose one";
        QuotasConflict = "QUOTAS_CONFLICT", Invalid, "two of `capacity-card`, `capacity` and `proportion` are in one policy, and each keeps quotas of queues", "use one of them";
        PluginDuplicate = "PLUGIN_DUPLICATE", Invalid, "a plugin repeats; in a policy the last entry applies", "remove one";
        KeyDuplicate = "KEY_DUPLICATE", Invalid, "a key repeats; the last entry applies", "remove one";
        TierEmpty = "TIER_EMPTY", Invalid, "a tier has no plugins", "remove the tier";
        KeyUnknown = "KEY_UNKNOWN", Invalid, "the key has no meaning at its place", "correct or remove it";
        SwitchPrefix = "SWITCH_PREFIX", Invalid, "`enable…` instead of `enabled…`, or the reverse, has no effect", "correct the prefix";
        SwitchNull = "SWITCH_NULL", Invalid, "`Null` means false, unlike `null`", "write `false`";
        PumiceSection = "PUMICE_SECTION", Invalid, "the section `pumice:` has an error", "see the message";
        Profile = "PROFILE", Invalid, "a profile of a `KubeSchedulerConfiguration` is impossible, or probably a mistake", "see the message";
        ArgumentType = "ARGUMENT_TYPE", Invalid, "an argument has the wrong type", "see the type in [policy.md](policy.md)";
        ArgumentRange = "ARGUMENT_RANGE", Invalid, "a number is too large for its field", "use a smaller number";
        ArgumentInvalid = "ARGUMENT_INVALID", Invalid, "the plugin cannot use the argument", "see [policy.md](policy.md)";
        ArgumentUnknownKey = "ARGUMENT_UNKNOWN_KEY", Invalid, "the plugin does not have the argument", "see the message";
        ArgumentIgnored = "ARGUMENT_IGNORED", Invalid, "the plugin ignores the argument, or uses another value", "see the message";
        ArgumentLegacy = "ARGUMENT_LEGACY", Invalid, "Volcano no longer reads this spelling; Pumice does", "use the present spelling";
        ArgumentWeight = "ARGUMENT_WEIGHT", Invalid, "a weight has no effect, or may move scores out of their range", "see the message";
        ArgumentStrategy = "ARGUMENT_STRATEGY", Invalid, "the plugin does not have the strategy", "see the message";
        ArgumentResource = "ARGUMENT_RESOURCE", Invalid, "the plugin never uses the resource", "see the message";
        ArgumentMute = "ARGUMENT_MUTE", Invalid, "with these arguments the plugin scores all nodes equally", "see the message";
    }
    "Warnings of loaded files" {
        RecordRejected = "RECORD_REJECTED", Invalid, "the server would reject the record; the message has the reason", "correct the object";
        FieldNotRead = "FIELD_NOT_READ", Invalid, "Pumice does not evaluate this field of the object", "see [compatibility.md](compatibility.md)";
        CardUnknown = "CARD_UNKNOWN", NotFound, "no node has a card of that name", "correct the annotation, or load the nodes";
        PriorityClassUnknown = "PRIORITY_CLASS_UNKNOWN", NotFound, "the file has no priority class of that name", "add the class to the file";
        CardLabelIgnored = "CARD_LABEL_IGNORED", Invalid, "a label of the cards of a node is unreadable", "correct the label";
    }
}

/// Declares the codes of rejections: variant, which is the code on the wire, who rejects, meaning and remedy.
macro_rules! rejections {
    ($($code:ident = $by:literal, $meaning:literal, $remedy:literal;)*) => {
        /// Code of a rejection of a node, a job, a task or a placement: a result, not an error. `pumice explain` and the
        /// commands print its remedy.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum RejectionCode {
            $(#[doc = concat!("`", stringify!($code), "`")] $code,)*
        }

        impl RejectionCode {
            /// All codes, in the order of the page.
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            const fn texts(self) -> [&'static str; 4] {
                match self {
                    $(Self::$code => [stringify!($code), $by, $meaning, $remedy],)*
                }
            }
        }
    };
}

impl RejectionCode {
    /// Code of this name; `None`: the list does not have it, as a plugin may give reasons of its own.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.name() == name)
    }

    /// Name on the wire, such as `NodeNotReady`, usable as the reason of a Kubernetes event.
    pub const fn name(self) -> &'static str {
        let [name, ..] = self.texts();
        name
    }

    /// Plugins that reject with it, or parts of the server such as `node-state`.
    pub const fn by(self) -> &'static str {
        let [_, by, ..] = self.texts();
        by
    }

    /// Meaning, as a cell of the page has it.
    pub const fn meaning(self) -> &'static str {
        let [_, _, meaning, _] = self.texts();
        meaning
    }

    /// Change that lets the task, job or placement pass, as a clause for people.
    pub const fn remedy(self) -> &'static str {
        let [.., remedy] = self.texts();
        remedy
    }
}

rejections! {
    NodeNotReady = "node-state", "the node's Ready condition is not true", "repair the node; a node that is not ready takes no task";
    NodeUnschedulable = "node-state, predicates", "cordoned", "uncordon the node (`kubectl uncordon NODE`)";
    NodeGroupLabelMissing = "nodegroup", "the node belongs to no group", "label the node with volcano.sh/nodegroup-name, or set `strict` of nodegroup to false";
    NodeGroupAffinityMissing = "nodegroup", "the task's queue lists no groups of nodes", "give the queue `spec.affinity` with groups of nodes";
    NodeGroupLimitExceeded = "nodegroup", "the task would pass a limit of its queue on the group of the node", "raise the group's limit in the queue's annotation `volcano.sh/nodegroup-resource-limits`, or use another group";
    NodeGroupLimitsInvalid = "nodegroup", "the limits of the task's queue on groups of nodes cannot be read", "write the queue's annotation `volcano.sh/nodegroup-resource-limits` as JSON, such as `{\"a\": {\"cpu\": \"8\"}}`";
    NodeGroupMismatch = "nodegroup", "the task's queue does not use the group of the node", "add the group of the node to `spec.affinity` of the queue, or use another node";
    RevocableNodeNotAllowed = "tdm", "the node is in a revocable zone, and the pod may not use such nodes", "give the pod the annotation `volcano.sh/revocable-zone: \"*\"`, or use another node";
    RevocableZoneClosed = "tdm", "the window of the node's revocable zone does not include the time of the request", "wait until the window begins, or widen `tdm.revocable-zone.<zone>` in the policy";
    RevocableZoneInvalid = "tdm, under `upstream`", "the window of the node's revocable zone cannot be read", "write `tdm.revocable-zone.<zone>` of the policy as `HH:MM-HH:MM`";
    RevocableZoneUnknown = "tdm", "the policy has no window for the node's revocable zone", "add `tdm.revocable-zone.<zone>` to the policy, or correct the label `volcano.sh/revocable-zone` of the node";
    NodeCpuLoad = "usage", "the measured load of the node's CPUs is above the threshold", "wait until the load falls, raise `thresholds` of usage in the policy, or use another node";
    NodeMemoryLoad = "usage", "the measured load of the node's memory is above the threshold", "wait until the load falls, raise `thresholds` of usage in the policy, or use another node";
    NodeInvalid = "node-state", "the node's newest record was rejected; the last good record applies, and the node takes no new tasks", "send the node again with the field corrected that `pumice state show nodes` names";
    NodeNotFound = "node-state", "the task names an unknown node", "name a node that `pumice state show nodes` lists";
    NoCandidates = "node-state", "the list of candidates is empty", "allow more nodes with --nodes, or exclude fewer";
    NoDevices = "gpu-devices", "the task requests devices, and the node does not report any", "choose nodes with devices, or send the devices of the node (`Node.devices`)";
    DeviceModel = "gpu-devices", "the node's devices are of a model that the task does not accept", "wait, or name more models of devices";
    DeviceTaken = "gpu-devices, commit", "a device of the placement has too little free capacity", "place the task again";
    DevicesInUse = "gpu-devices", "too few devices have enough free capacity; see the measurements", "wait until tasks end, or ask for fewer devices or a smaller share";
    InsufficientResource = "resource-fit", "not enough free capacity; the measurements have the missing amount", "wait until tasks end, request less, or add nodes";
    ProportionalReserve = "resource-strategy-fit", "cpu or memory is reserved for idle devices ([policy.md](policy.md#reserve-for-idle-devices-proportional))", "use another node, or change `proportional` in the policy; preemption does not help";
    TooFewOfRole = "place", "with these placements the job would still lack tasks of a role (`minTaskMember`) or a group (`subGroupPolicy`)", "place tasks of every role and group of the job together, or lower its minimums";
    TooFewOfGroup = "place", "a group (`subGroupPolicy`) needs more tasks than the request has; without them the group does not start", "place all tasks of the group together, or lower `subGroupSize`";
    NodeAffinityMismatch = "predicates", "the node lacks a label of `nodeSelector`, or meets none of the required terms of the node affinity", "correct the node selector or node affinity of the pod, or label nodes";
    AddedNodeAffinityMismatch = "NodeAffinity", "the node does not match the node affinity that the profile adds to every pod (`addedAffinity`)", "label nodes, or correct `addedAffinity` of the profile";
    NodeAffinityConflict = "predicates", "the required terms name nodes (`metadata.name`) and have no node in common", "correct the required terms of the node affinity: they name no node in common";
    UntoleratedTaint = "predicates", "the node has a taint NoSchedule or NoExecute that the pod does not tolerate", "add a toleration to the pod, or remove the taint from nodes";
    HostPortTaken = "predicates", "a pod on the node takes one of the host ports", "wait until the pod that takes the port ends, or use another host port";
    TooManyPods = "predicates", "the node has as many pods as it allows", "wait until pods end, or let nodes run more pods (`maxPods` of the kubelet)";
    PodAffinityMismatch = "predicates", "no pod in the node's topology domain meets all required terms of the pod affinity, or the node lacks a topology key", "start a pod that the pod affinity asks for, or correct its terms";
    PodAntiAffinity = "predicates", "a pod that the required anti-affinity selects runs in the node's topology domain", "wait until the pods that the anti-affinity names end, or add nodes in other topology domains";
    ExistingPodAntiAffinity = "predicates", "a pod whose required anti-affinity selects this pod runs in the node's topology domain", "wait until the pods whose anti-affinity names this pod end, or add nodes in other topology domains";
    MissingTopologyLabel = "predicates", "the node lacks a topology key of a spread constraint", "label nodes with the topology keys of the spread constraints";
    TopologySpread = "predicates", "one more pod in the node's topology domain exceeds `maxSkew`", "add nodes in the topology domains with the fewest pods, or raise `maxSkew`";
    EquivalenceCache = "predicates, under `upstream`", "the first task of the same template does not fit here, and `predicate.CacheEnable` gives its verdict to the others", "switch `predicate.CacheEnable` off: pods of one template differ";
    TooFewTasks = "place", "the request has fewer tasks than `minAvailable`", "give at least as many tasks as must start together, or lower the minimum";
    QueueNotOpen = "capacity, capacity-card, proportion, queue-state", "the queue, or a queue above it, is not open, so it takes no jobs", "open the queue, or use another one";
    QueueInvalid = "queue-state", "the queue's newest record was rejected", "send the queue again with the named field corrected";
    InsufficientCPUQuota = "capacity-card", "the queue's capability of cpu would be exceeded", "wait until jobs of the queue end, request less cpu, or raise `spec.capability.cpu` of the queue";
    InsufficientMemoryQuota = "capacity-card", "the queue's capability of memory would be exceeded", "wait until jobs of the queue end, request less memory, or raise `spec.capability.memory` of the queue";
    InsufficientScalarQuota = "capacity-card", "the queue's quota of a card would be exceeded", "wait until jobs of the queue end, request fewer cards, accept more kinds of cards (`volcano.sh/card.name: A|B`), or raise the annotation `volcano.sh/card.quota` of the queue";
    QueueOverDeserved = "proportion", "with the task, the queue would hold more than it deserves by weight; the measurements have the amounts", "wait until jobs of the queue end, or raise the weight or `spec.guarantee` of the queue";
    QueueOverCapability = "capacity, proportion", "the queue, or one above it, would hold and reserve more than its capability and the guarantees of others leave", "wait until jobs of the queue end, request less, or raise `spec.capability` of the queue";
    QueueNotALeaf = "capacity", "the queue has queues below it", "use a queue that has no queues below it";
    QueueTreeNotReady = "capacity, under `upstream`", "a parent does not exist, or an inner queue has jobs; the reference then rejects all jobs of all queues", "correct `spec.parent` of the queue that the message names, or move the jobs of inner queues to leaves";
    ResourceOveruse = "overcommit", "with the job, enqueued jobs would exceed the cluster's resources times `overcommit-factor`; the measurements have the amounts", "wait until jobs end, request less in `spec.minResources`, add nodes, or raise `overcommit-factor` in the policy";
    ResourceQuotaExceeded = "resourcequota", "with the job, the pods of its namespace would exceed a ResourceQuota; the message and the measurements have the amounts", "wait until pods of the namespace end, request less in `spec.minResources`, or raise the quota";
    CardNotOnNode = "capacity-card", "the node has none of the task's cards", "use a node with one of the task's cards, or accept more kinds of cards (`volcano.sh/card.name: A|B`)";
    QueuePathInvalid = "capacity-card", "with `cardHierarchy`: the queue's parents do not lead to the root", "correct `spec.parent` of the queue, so that its parents lead to the root";
    EmptyQueueCapability = "capacity-card", "the queue has no capability", "give the queue `spec.capability` or the annotation `volcano.sh/card.quota`";
    GetTaskRequestResourceFailed = "capacity-card", "the task's request is unreadable", "correct the card annotations (`volcano.sh/card.name`, `volcano.sh/card.request`) so that they name cards of the cluster that the pods request";
    ReservationReleased = "admission-ledger", "this attempt was released before, or the job with this uid has ended", "ask again with a higher `attempt`";
    NothingPlaced = "commit", "the request names the job, and the session places none of its tasks", "leave the job out, or place its tasks";
    JobGone = "commit", "the job was deleted", "drop its tasks from the session";
    JobReplaced = "commit", "a job of the same name with another uid exists", "read the job again and place its tasks again";
    TaskGone = "commit", "the task was deleted", "drop it from the session";
    TaskReplaced = "commit", "a task of the same name with another uid exists", "read the task again and place it again";
    TaskNotPending = "commit", "the task has a node already", "nothing to do, or place another task";
    NodeGone = "commit", "the node was deleted", "place the task again";
    NodeReplaced = "commit", "a node of the same name with another uid exists", "place the task again";
    DeviceCount = "commit", "the number of named devices differs from the number that the task requests", "name as many devices as the task requests";
    NotAdmitted = "commit", "the policy does not admit the task, and no plugin gives a reason", "wait, or check the quota of the queue";
    CardNotAdmitted = "commit", "the queue does not admit the task on a card that the node has", "wait, or place the task on a node with another card";
    GangIncomplete = "commit", "too few tasks of the job would have a node", "place more tasks of the job in one commit";
}
