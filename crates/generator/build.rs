//! Generates all code that the workspace makes from protocol files: messages and clients of `pumice.v1` (`crates/protocol`), the
//! server side of its services (the root package), the page of the protocol, and the client of etcd (`crates/etcd`).

mod protocol_page;
mod services;

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use protox::prost_reflect::prost::Message as _;
use services::{Clients, Servers};

fn main() -> Result<(), Box<dyn Error>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let (proto, etcd) = (root.join("proto"), root.join("crates/etcd/proto"));
    for folder in [&proto, &etcd] {
        println!("cargo::rerun-if-changed={}", folder.display());
    }
    let files = ["types", "decision", "state", "policy"].map(|name| format!("pumice/v1/{name}.proto"));
    let descriptors = protox::compile(files, [proto])?;
    fs::write(
        folder("page")?.join("protocol.md"),
        protocol_page::page(&descriptors.file),
    )?;
    messages(descriptors.clone(), &folder("protocol")?)?;
    services(descriptors, &folder("server")?)?;
    etcd_client(protox::compile(["etcd.proto"], [etcd])?, &folder("etcd")?)
}

/// Folder for the code of one crate.
#[expect(
    clippy::disallowed_methods,
    reason = "cargo tells a build script its folder by the environment"
)]
fn folder(name: &str) -> Result<PathBuf, Box<dyn Error>> {
    let folder = Path::new(&std::env::var("OUT_DIR")?).join(name);
    fs::create_dir_all(&folder)?;
    Ok(folder)
}

fn messages(descriptors: prost_types::FileDescriptorSet, out: &Path) -> Result<(), Box<dyn Error>> {
    fs::write(out.join("descriptor.bin"), descriptors.encode_to_vec())?;
    let mut config = prost_build::Config::new();
    config
        .enable_type_names()
        .bytes([".pumice.v1.NodeSet.bitmap"])
        // Sorted maps: problems of a record come in the order of its keys, whatever the order of arrival.
        .btree_map(["."])
        // Few tasks have constraints; all would grow by them.
        .boxed(".pumice.v1.Task.constraints")
        .boxed(".pumice.v1.Task.container_nonzero_requests")
        .boxed(".pumice.v1.Task.container_requests")
        .boxed(".pumice.v1.Task.kubernetes_requests")
        .boxed(".pumice.v1.Task.scheduled_time")
        .boxed(".pumice.v1.Task.start_time")
        // Few nodes have a measured load.
        .boxed(".pumice.v1.Node.load")
        // Few requests bring a cluster; all would be moved with the room for one.
        .boxed(".pumice.v1.EvaluationRef.target.inline")
        // Few queues have an affinity.
        .boxed(".pumice.v1.Queue.affinity")
        // The larger variant is the usual one, so a box would only cost an allocation.
        .enum_attribute(".", "#[allow(clippy::large_enum_variant)]")
        .service_generator(Box::new(Clients))
        .out_dir(out);
    config.compile_fds(descriptors)?;
    Ok(())
}

fn services(descriptors: prost_types::FileDescriptorSet, out: &Path) -> Result<(), Box<dyn Error>> {
    let mut config = prost_build::Config::new();
    config
        .extern_path(".pumice.v1", "::pumice_protocol::v1")
        .service_generator(Box::new(Servers))
        .out_dir(out);
    config.compile_fds(descriptors)?;
    Ok(())
}

fn etcd_client(descriptors: prost_types::FileDescriptorSet, out: &Path) -> Result<(), Box<dyn Error>> {
    tonic_prost_build::configure()
        .build_server(false)
        .out_dir(out)
        .compile_fds(descriptors)?;
    Ok(())
}
