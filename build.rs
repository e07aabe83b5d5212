//! Compiles the protocol files, without a `protoc` on the machine.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    #[cfg(feature = "server")]
    compile()?;
    Ok(())
}

#[cfg(feature = "server")]
fn compile() -> Result<(), Box<dyn std::error::Error>> {
    use protox::prost_reflect::prost::Message;

    let files = ["types", "decision", "state", "policy"].map(|name| format!("pumice/v1/{name}.proto"));
    let descriptors = protox::compile(files, ["proto"])?;
    let out = std::path::PathBuf::from(std::env::var_os("OUT_DIR").ok_or("OUT_DIR is not set")?);
    std::fs::write(out.join("pumice_descriptor.bin"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".pumice.v1.NodeSet.bitmap")
        .compile_fds(descriptors)?;
    Ok(())
}
