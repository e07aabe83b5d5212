//! Documents and the releases that they follow.

use super::{Compatibility, DiagnosticReport};

/// Compiles a document of Volcano that says this of its compatibility, asked for with another one.
fn compiled_with(section: &str, asked: &str) -> Result<crate::policy::CompiledPolicy, DiagnosticReport> {
    let document = format!("{section}actions: enqueue, gangpreempt\ntiers: [{{plugins: [{{name: gang}}]}}]\n");
    let options = crate::policy::CompileOptions {
        compatibility: Compatibility::from_name(asked).unwrap(),
        ..crate::policy::CompileOptions::default()
    };
    crate::policy::compile(&document, &options)
}

#[test]
fn a_document_follows_a_release_of_its_scheduler() {
    let name = |section, asked| {
        let compiled = compiled_with(section, asked);
        compiled.map(|compiled| (compiled.policy.compatibility().name(), compiled.effective_document))
    };
    for (section, asked, follows) in [
        ("", "upstream", "volcano-ed72c7c81"),
        ("", "volcano-1.15.1", "volcano-1.15.1"),
        (
            "pumice: {compatibility: volcano-1.15.1}\n",
            "corrected",
            "volcano-1.15.1",
        ),
        (
            "pumice: {compatibility: upstream}\n",
            "kube-scheduler-1.37",
            "volcano-ed72c7c81",
        ),
        ("pumice: {compatibility: corrected}\n", "volcano-1.14.4", "corrected"),
    ] {
        let (own, effective) = name(section, asked).unwrap();
        assert_eq!(own, follows, "{section}{asked}");
        assert!(effective.contains(&format!("compatibility: {follows}")), "{effective}");
    }
    let message = |section, asked| {
        let report = compiled_with(section, asked).map(drop).unwrap_err();
        let lines: Vec<String> = report.errors().map(|problem| problem.message.clone()).collect();
        lines.join("; ")
    };
    assert_eq!(
        message("pumice: {compatibility: kube-scheduler-1.37}\n", "corrected"),
        "expected one of upstream, volcano-1.14.4, volcano-1.15.1, volcano-ed72c7c81, corrected, found \
         kube-scheduler-1.37, which is no release of Volcano"
    );
    assert_eq!(
        message("", "kube-scheduler-1.36"),
        "`kube-scheduler-1.36` is asked for, which is no release of Volcano; name one of upstream, volcano-1.14.4, \
         volcano-1.15.1, volcano-ed72c7c81, corrected in the section `pumice:`"
    );
    assert_eq!(
        message("pumice: {compatibility: volcano-1.14.4}\n", "corrected"),
        "volcano-1.14.4 has no action `gangpreempt`, and refuses the document: remove it, or follow a later release"
    );
}
