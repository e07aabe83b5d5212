//! Compares the checked-in code with the protocol files; with `PUMICE_BLESS=1` writes it again.
//!
//! All generated code of the workspace is made here, so that no build needs a generator: messages and clients of `pumice.v1`
//! (this crate), the server side of its services (the root package), and the client of etcd (`crates/etcd`).

#![cfg(test)]

use std::path::{Path, PathBuf};

use protox::prost_reflect::prost::Message as _;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn descriptors() -> prost_types::FileDescriptorSet {
    let files = ["types", "decision", "state", "policy"].map(|name| format!("pumice/v1/{name}.proto"));
    protox::compile(files, [root().join("proto")]).unwrap()
}

/// Compares generated files with those of a folder of the workspace.
fn compare(generated: &Path, folder: &str, names: &[&str]) {
    let checked_in = root().join(folder);
    for name in names {
        let fresh = std::fs::read(generated.join(name)).unwrap();
        if std::env::var_os("PUMICE_BLESS").is_some() {
            std::fs::write(checked_in.join(name), &fresh).unwrap();
        }
        let old = std::fs::read(checked_in.join(name)).unwrap_or_default();
        assert!(
            old == fresh,
            "{folder}/{name} differs from what the protocol files generate: run PUMICE_BLESS=1 cargo test --package pumice-protocol --test generated"
        );
    }
}

#[test]
fn the_generated_code_is_that_of_the_protocol_files() {
    let descriptors = descriptors();
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
    compare(
        out.path(),
        "crates/protocol/src/generated",
        &["pumice.v1.rs", "descriptor.bin"],
    );
}

#[test]
fn the_generated_services_are_those_of_the_protocol_files() {
    let out = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".pumice.v1", "::pumice_protocol::v1")
        .codec_path("crate::server::codec::WeighedCodec")
        .out_dir(out.path())
        .compile_fds(descriptors())
        .unwrap();
    compare(out.path(), "src/server/generated", &["pumice.v1.rs"]);
}

#[test]
fn the_generated_client_of_etcd_is_that_of_its_protocol_file() {
    let out = tempfile::tempdir().unwrap();
    let descriptors = protox::compile(["etcd.proto"], [root().join("crates/etcd/proto")]).unwrap();
    tonic_prost_build::configure()
        .build_server(false)
        .out_dir(out.path())
        .compile_fds(descriptors)
        .unwrap();
    compare(out.path(), "crates/etcd/src/generated", &["etcdserverpb.rs"]);
}
