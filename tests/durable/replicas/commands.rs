//! Moving durable state from a directory to a store that servers share, and back, by `pumice store`.

use super::replica::{Replica, connect, feed, promised, push_policy, runtime};
use super::shared_store::SharedService;
use crate::support::ledger::{ask, confirm, wants};
use crate::support::process::{ServeProcess, err, out, pumice};

#[test]
#[ignore = "needs a store: make replicas"]
fn a_store_moves_from_disk_to_a_shared_one_and_back() {
    let store = SharedService::start(1);
    let folder = std::env::temp_dir().join(format!("pumice-moves-{}", std::process::id()));
    drop(std::fs::remove_dir_all(&folder));
    std::fs::create_dir_all(&folder).unwrap();
    let path = |name: &str| folder.join(name).display().to_string();
    let (disk, back, first, second) = (path("disk"), path("back"), path("first.jsonl"), path("second.jsonl"));
    let runtime = runtime();
    let mut process = ServeProcess::start(&["--data-dir", &disk]);
    let wire = connect(&runtime, process.grpc, std::time::Duration::from_secs(5)).unwrap();
    push_policy(&wire);
    feed(&wire, 1);
    wire.admit(confirm(vec![ask(wants("ns/a", "q", 6), 1)])).unwrap();
    let before = promised(&wire);
    process.terminate();
    assert!(process.wait().success());

    let place = store.place();
    let with_place = |arguments: &[&str]| {
        let (begin, rest) = arguments.split_at(2);
        let place = place.iter().map(|argument| &**argument);
        let all: Vec<&str> = begin.iter().copied().chain(place).chain(rest.iter().copied()).collect();
        pumice(None, &all)
    };
    let run_there = |arguments: &[&str]| {
        let output = with_place(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", err(&output));
        out(&output)
    };
    let run = |arguments: &[&str]| {
        let output = pumice(None, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", err(&output));
        out(&output)
    };
    let missing = with_place(&["store", "check"]);
    assert!(err(&missing).contains("there is no store"), "{}", err(&missing));
    run(&["store", "export", &disk, "--out", &first]);
    assert!(run_there(&["store", "import", &first]).contains("1 reservations"));
    let again = with_place(&["store", "import", &first]);
    assert!(err(&again).contains("has a store already"), "{}", err(&again));
    assert!(run_there(&["store", "check"]).contains("every record is whole"));

    let replica = Replica::start(&store);
    let wire = connect(&runtime, replica.grpc(), std::time::Duration::from_secs(5)).unwrap();
    assert_eq!(promised(&wire), before);
    drop(replica);

    run_there(&["store", "export", "--out", &second]);
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    run(&["store", "import", &back, &second]);
    assert!(run(&["store", "check", &back]).contains("1 reservations"));
    std::fs::remove_dir_all(&folder).unwrap();
}
