//! Compiles the protocol files, without a `protoc` on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    compile()
}

fn compile() -> Result<(), Box<dyn std::error::Error>> {
    use protox::prost_reflect::prost::Message;

    let files = ["types", "decision", "state", "policy"].map(|name| format!("pumice/v1/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out.join("pumice_descriptor.bin"), descriptors.encode_to_vec())?;
    let mut names = prost_build::Config::new();
    names.enable_type_names();
    tonic_prost_build::configure()
        .bytes(".pumice.v1.NodeSet.bitmap")
        // Sorted maps: problems of a record come in the order of its keys, whatever the order of arrival.
        .btree_map(".")
        // The larger variant is the usual one, so a box would only cost an allocation.
        .enum_attribute(".", "#[allow(clippy::large_enum_variant)]")
        .codec_path("crate::server::codec::WeighedCodec")
        .compile_fds_with_config(descriptors, names)?;
    Ok(())
}
