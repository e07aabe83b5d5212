//! Compares the checked-in code with the protocol files; with `PUMICE_BLESS=1` writes it again.

use std::path::{Path, PathBuf};

use protox::prost_reflect::prost::Message as _;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

#[test]
fn the_generated_code_is_that_of_the_protocol_files() {
    let files = ["types", "decision", "state", "policy"].map(|name| format!("pumice/v1/{name}.proto"));
    let descriptors = protox::compile(files, [root().join("proto")]).unwrap();
    let out = tempfile::tempdir().unwrap();
    let encoded = descriptors.encode_to_vec();
    std::fs::write(out.path().join("descriptor.bin"), encoded).unwrap();
    let mut names = prost_build::Config::new();
    names.enable_type_names();
    tonic_prost_build::configure()
        .build_server(false)
        .bytes(".pumice.v1.NodeSet.bitmap")
        // Sorted maps: problems of a record come in the order of its keys, whatever the order of arrival.
        .btree_map(".")
        // Few tasks have constraints; all would grow by them.
        .boxed(".pumice.v1.Task.constraints")
        .boxed(".pumice.v1.Task.container_nonzero_requests")
        .boxed(".pumice.v1.Task.kubernetes_requests")
        // Few queues have an affinity.
        .boxed(".pumice.v1.Queue.affinity")
        // The larger variant is the usual one, so a box would only cost an allocation.
        .enum_attribute(".", "#[allow(clippy::large_enum_variant)]")
        .out_dir(out.path())
        .compile_fds_with_config(descriptors, names)
        .unwrap();
    let checked_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/generated");
    for name in ["pumice.v1.rs", "descriptor.bin"] {
        let fresh = std::fs::read(out.path().join(name)).unwrap();
        if std::env::var_os("PUMICE_BLESS").is_some() {
            std::fs::write(checked_in.join(name), &fresh).unwrap();
        }
        let old = std::fs::read(checked_in.join(name)).unwrap_or_default();
        assert!(
            old == fresh,
            "{name} is not what the protocol files say: PUMICE_BLESS=1 cargo test --package pumice-protocol"
        );
    }
}
