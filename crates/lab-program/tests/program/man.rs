//! Man pages of both programs.

use super::{err, lab, out};
use crate::support::TestDirectory;

#[test]
fn the_manual_has_a_page_for_each_command() {
    let folder = TestDirectory::named("man");
    let output = lab(&["man", "--dir", folder.text()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", err(&output));
    for page in [
        "pumice",
        "pumice-serve",
        "pumice-policy",
        "pumice-policy-push",
        "pumice-state-load",
        "pumice-score",
        "pumice-lab",
        "pumice-lab-bench",
        "pumice-lab-man",
    ] {
        let text = std::fs::read_to_string(folder.path().join(format!("{page}.1"))).unwrap();
        assert!(text.contains(&format!(".TH {page} 1")), "{text}");
        assert!(
            text.contains(&format!("{} \\-", page.replace('-', "\\-"))),
            "its name: {text}"
        );
        assert!(text.contains("the server is unreachable"), "the exit codes: {text}");
    }
    assert!(out(&lab(&["man"]).output().unwrap()).contains(".TH pumice 1"));
}
