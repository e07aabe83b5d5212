//! Names of resources as people write them on a command line: one rule for `--shape`, `--request` and every other flag.

use pumice_engine::model::resource_name::ResourceKind;
use pumice_engine::policy::suggestion;

/// Resource that `gpu` is short for.
pub const GPU: &str = "nvidia.com/gpu";
/// Names that are suggested for a misspelt one.
const SUGGESTED: [&str; 6] = ["cpu", "memory", "pods", "ephemeral-storage", "gpu", GPU];

/// Full name of a resource. `gpu` is short for `nvidia.com/gpu`; other names, such as `cpu` or `amd.com/gpu`, are not
/// changed.
///
/// # Errors
/// The name is not a resource name that schedulers use. The message suggests the closest name, such as `memory` for
/// `memroy`.
pub fn full_name(written: &str) -> Result<String, String> {
    if written == "gpu" {
        return Ok(GPU.to_owned());
    }
    match ResourceKind::of(written) {
        ResourceKind::Uncounted | ResourceKind::CountQuota => {
            let hint = match suggestion::nearest_name(written, &SUGGESTED) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None => "an extended resource has a domain, such as `nvidia.com/gpu`".to_owned(),
            };
            Err(format!("`{written}` is no resource of a node; {hint}"))
        }
        ResourceKind::Cpu
        | ResourceKind::Memory
        | ResourceKind::Pods
        | ResourceKind::EphemeralStorage
        | ResourceKind::Scalar => Ok(written.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gpu_is_short_for_the_nvidia_resource_and_misspelt_names_are_pointed_out() {
        assert_eq!(full_name("gpu").unwrap(), GPU);
        for name in ["cpu", "memory", "nvidia.com/gpu", "amd.com/gpu", "hugepages-2Mi"] {
            assert_eq!(full_name(name).unwrap(), name);
        }
        for (wrong, meant) in [("gpus", "`gpu`"), ("memroy", "`memory`"), ("CPUs", "`cpu`")] {
            let error = full_name(wrong).unwrap_err();
            assert!(error.contains(&format!("did you mean {meant}")), "{error}");
        }
    }
}
