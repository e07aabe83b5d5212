//! Generates the server side of the services from the protocol files, without a `protoc` on the machine. The messages and
//! the clients are those of `crates/protocol`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = ["types", "decision", "state", "policy"].map(|name| format!("pumice/v1/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    tonic_prost_build::configure()
        .build_client(false)
        .extern_path(".pumice.v1", "::pumice_protocol::v1")
        .codec_path("crate::server::codec::WeighedCodec")
        .compile_fds(descriptors)?;
    Ok(())
}
