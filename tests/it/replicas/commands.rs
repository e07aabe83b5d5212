//! Moving durable state from a directory to etcd and back, by `pumice store`.

use super::etcd::EtcdCluster;
use super::replica::{Replica, connect, feed, promised, push_policy, runtime};
use crate::ledger::{ask, confirm, wants};
use crate::support::process::{ServeProcess, err, out, pumice};

#[test]
#[ignore = "needs etcd: make replicas"]
fn a_store_moves_from_disk_to_etcd_and_back() {
    let etcd = EtcdCluster::start(1);
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

    let run = |arguments: &[&str]| {
        let output = pumice(None, arguments);
        assert!(output.status.success(), "{arguments:?}: {}", err(&output));
        out(&output)
    };
    let members = etcd.options().endpoints.join(",");
    let missing = pumice(None, &["store", "check", &members]);
    assert!(err(&missing).contains("there is no store"), "{}", err(&missing));
    run(&["store", "export", &disk, "--out", &first]);
    assert!(run(&["store", "import", &members, &first]).contains("1 reservations"));
    let again = pumice(None, &["store", "import", &members, &first]);
    assert!(err(&again).contains("has a store already"), "{}", err(&again));
    assert!(run(&["store", "check", &members]).contains("every record is whole"));

    let replica = Replica::start(&etcd);
    let wire = connect(&runtime, replica.grpc(), std::time::Duration::from_secs(5)).unwrap();
    assert_eq!(promised(&wire), before);
    drop(replica);

    run(&["store", "export", &members, "--out", &second]);
    assert_eq!(std::fs::read(&first).unwrap(), std::fs::read(&second).unwrap());
    run(&["store", "import", &back, &second]);
    assert!(run(&["store", "check", &back]).contains("1 reservations"));
    std::fs::remove_dir_all(&folder).unwrap();
}
