//! Requests of callers: messages of `pumice.v1` behind the layers of a listener, and bodies of the extender protocols.

use std::cell::RefCell;
use std::sync::LazyLock;

use pumice::fuzz_entries::{CallOutcome, FuzzedServer, frame};
use pumice::server::pb;

use crate::choices::split_choice;
use crate::seeds;
use crate::support::records::full_sync;

/// gRPC codes that no input may cause: unknown and internal.
const SERVER_ERRORS: [i32; 2] = [2, 13];
/// Number of inputs after which a server whose state changes is replaced.
const INPUTS_PER_SERVER: u32 = 20_000;

/// Methods that ask.
pub const DECISIONS: [&str; 17] = [
    "/pumice.v1.DecisionService/Filter",
    "/pumice.v1.DecisionService/Score",
    "/pumice.v1.DecisionService/Place",
    "/pumice.v1.DecisionService/Admit",
    "/pumice.v1.DecisionService/Order",
    "/pumice.v1.DecisionService/SelectVictims",
    "/pumice.v1.DecisionService/ListSessions",
    "/pumice.v1.StateService/GetNodeTable",
    "/pumice.v1.StateService/GetServerInfo",
    "/pumice.v1.StateService/WhoAmI",
    "/pumice.v1.StateService/ListNodes",
    "/pumice.v1.StateService/ListQueues",
    "/pumice.v1.StateService/ListJobs",
    "/pumice.v1.StateService/ListTasks",
    "/pumice.v1.StateService/ListNamespaces",
    "/pumice.v1.StateService/ListReservations",
    "/pumice.v1.PolicyService/GetPolicy",
];

/// Methods that change something.
pub const CHANGES: [&str; 12] = [
    "/pumice.v1.StateService/Apply",
    "/pumice.v1.StateService/Sync",
    "/pumice.v1.StateService/ReleaseReservation",
    "/pumice.v1.StateService/ReleaseAssumptions",
    "/pumice.v1.StateService/ForgetSource",
    "/pumice.v1.StateService/ForgetResource",
    "/pumice.v1.PolicyService/ReloadPolicy",
    "/pumice.v1.PolicyService/RollbackPolicy",
    "/pumice.v1.PolicyService/DeletePolicy",
    "/pumice.v1.DecisionService/OpenSession",
    "/pumice.v1.DecisionService/CloseSession",
    "/pumice.v1.DecisionService/CommitSession",
];

/// Verbs of kube-scheduler's extender protocol.
pub const KUBE_VERBS: [&str; 3] = ["filter", "prioritize", "preempt"];
/// Verbs of Volcano's extender protocol.
pub const VOLCANO_VERBS: [&str; 12] = [
    "onSessionOpen",
    "onSessionClose",
    "predicate",
    "prioritize",
    "preemptable",
    "reclaimable",
    "jobEnqueueable",
    "jobEnqueued",
    "queueOverused",
    "jobReady",
    "allocateFunc",
    "deallocateFunc",
];

/// Server with the records of the seeds, and the number of inputs that it got.
struct UsedServer(FuzzedServer, u32);

thread_local! {
    static SERVER: RefCell<Option<UsedServer>> = const { RefCell::new(None) };
}

/// The records of the seeds, as a full sync.
static RECORDS: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let request = pb::ApplyRequest {
        batch: Some(full_sync("kube", 1, seeds::cluster())),
    };
    frame(&prost::Message::encode_to_vec(&request))
});

fn with_server<T>(run: impl FnOnce(&FuzzedServer) -> T) -> T {
    SERVER.with_borrow_mut(|place| {
        if place.as_ref().is_some_and(|used| used.1 >= INPUTS_PER_SERVER) {
            *place = None;
        }
        let used = place.get_or_insert_with(|| {
            let server = FuzzedServer::start();
            let (code, _) = server.call(CHANGES[0], &[], RECORDS.clone());
            assert_eq!(code, 0, "the records of the seeds are taken");
            UsedServer(server, 0)
        });
        used.1 += 1;
        run(&used.0)
    })
}

fn checked((code, body): CallOutcome, path: &str) -> CallOutcome {
    assert!(!SERVER_ERRORS.contains(&code), "{path} ends with code {code}");
    (code, body)
}

/// Asks a decision or a list.
pub fn decide(data: &[u8]) {
    answered_decision(data);
}

/// Outcome of a decision or a list.
pub fn answered_decision(data: &[u8]) -> CallOutcome {
    let (choice, message) = split_choice(data);
    let path = DECISIONS[usize::from(choice) % DECISIONS.len()];
    with_server(|server| checked(server.call(path, &[], frame(message)), path))
}

/// Changes the state.
pub fn change_state(data: &[u8]) {
    answered_change(data);
}

/// Outcome of a change.
pub fn answered_change(data: &[u8]) -> CallOutcome {
    let (choice, message) = split_choice(data);
    let path = CHANGES[usize::from(choice) % CHANGES.len()];
    with_server(|server| checked(server.call(path, &[], frame(message)), path))
}

/// Receives frames as they are: their flags, lengths and compression, and the headers of the call.
pub fn receive_frames(data: &[u8]) {
    let (choice, rest) = split_choice(data);
    let (path, is_gzip) = (choice & 0x7f, choice & 0x80 != 0);
    let all: Vec<&str> = DECISIONS.iter().chain(&CHANGES).copied().collect();
    let path = all[usize::from(path) % all.len()];
    let (length, rest) = split_choice(rest);
    let (headers, body) = rest.split_at(usize::from(length % 64).min(rest.len()));
    let mut values = headers.splitn(3, |byte| *byte == b'\n');
    let mut named: Vec<(&'static str, &[u8])> = Vec::new();
    for name in ["grpc-timeout", "authorization", "traceparent"] {
        named.extend(
            values
                .next()
                .filter(|value| !value.is_empty())
                .map(|value| (name, value)),
        );
    }
    if is_gzip {
        named.push(("grpc-encoding", b"gzip"));
    }
    with_server(|server| checked(server.call(path, &named, body.to_vec()), path));
}

/// Asks as kube-scheduler does.
pub fn ask_kube_extender(data: &[u8]) {
    answered_kube(data);
}

/// HTTP status and body of an response to kube-scheduler.
pub fn answered_kube(data: &[u8]) -> (u16, Vec<u8>) {
    let (choice, body) = split_choice(data);
    let path = format!("/kube-scheduler/{}", KUBE_VERBS[usize::from(choice) % KUBE_VERBS.len()]);
    // A hold is written by the writer, whose thread has to wake for it: few requests make one.
    let is_dry = choice < 0xf0;
    with_server(|server| {
        let (status, response) = server.ask_extender(&path, is_dry, body.to_vec());
        assert_ne!(status, 500, "{path}");
        assert!(status != 200 || serde_json::from_slice::<serde_json::Value>(&response).is_ok());
        (status, response)
    })
}

/// Asks as Volcano does.
pub fn ask_volcano_extender(data: &[u8]) {
    answered_volcano(data);
}

/// HTTP status and body of an response to Volcano.
pub fn answered_volcano(data: &[u8]) -> (u16, Vec<u8>) {
    let (choice, body) = split_choice(data);
    let verb = VOLCANO_VERBS[usize::from(choice) % VOLCANO_VERBS.len()];
    let path = format!("/volcano/volcano/{verb}");
    with_server(|server| {
        let (status, response) = server.ask_extender(&path, false, body.to_vec());
        assert_ne!(status, 500, "{path}");
        assert!(status != 200 || serde_json::from_slice::<serde_json::Value>(&response).is_ok());
        (status, response)
    })
}
