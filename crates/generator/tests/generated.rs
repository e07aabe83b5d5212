//! Compares the checked-in code with what the protocol files generate; with `PUMICE_BLESS=1` writes it again.

#![cfg(test)]

use std::path::Path;

/// Compares generated files with those of a folder of the workspace.
fn compare(generated: &str, folder: &str, names: &[&str]) {
    let generated = Path::new(pumice_generator::GENERATED).join(generated);
    let checked_in = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(folder);
    for name in names {
        let fresh = std::fs::read(generated.join(name)).unwrap();
        if std::env::var_os("PUMICE_BLESS").is_some() {
            std::fs::write(checked_in.join(name), &fresh).unwrap();
        }
        let old = std::fs::read(checked_in.join(name)).unwrap_or_default();
        assert!(
            old == fresh,
            "{folder}/{name} differs from what the protocol files generate: run PUMICE_BLESS=1 cargo test --package pumice-generator"
        );
    }
}

#[test]
fn the_generated_code_is_that_of_the_protocol_files() {
    let names = ["pumice.v1.rs", "descriptor.bin"];
    compare("protocol", "crates/protocol/src/generated", &names);
}

#[test]
fn the_generated_services_are_those_of_the_protocol_files() {
    compare("server", "src/server/generated", &["pumice.v1.rs"]);
}

#[test]
fn the_generated_client_of_etcd_is_that_of_its_protocol_file() {
    compare("etcd", "crates/etcd/src/generated", &["etcdserverpb.rs"]);
}

#[test]
fn the_page_of_the_protocol_is_that_of_its_files() {
    compare("page", "docs/reference", &["protocol.md"]);
}
