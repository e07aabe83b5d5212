//! Page about upgrades of Volcano: every change between its releases, with a case that shows it.

use std::fmt::Write as _;

use super::{page, root};
use pumice_engine::policy::Release;

/// Page with the table.
const PAGE: &str = "docs/upgrades/volcano.md";
/// Releases of Volcano, the oldest first.
const RELEASES: [Release; 3] = [Release::Volcano1144, Release::Volcano1151, Release::VolcanoEd72c7c81];

fn table() -> String {
    let [oldest, middle, newest] = RELEASES;
    let mut text = "| Change | What a release decides that has it | 1.14.4 | 1.15.1 | ed72c7c81 | Case |\n|---|---|---|---|---|---|\n".to_owned();
    for change in oldest.changes_between(newest) {
        let in_middle = !middle.changes_between(newest).any(|later| std::ptr::eq(later, change));
        let file = format!("{}.yaml", change.slug());
        let case = if root().join("docs/upgrades/cases").join(&file).exists() {
            format!("[{file}](cases/{file})")
        } else {
            "none".to_owned()
        };
        let has = if in_middle { "yes" } else { "no" };
        writeln!(
            text,
            "| {} | {} | no | {has} | yes | {case} |",
            change.number, change.text
        )
        .unwrap();
    }
    text
}

#[test]
fn the_page_of_upgrades_has_every_change_of_volcano() {
    let text = page(PAGE);
    let (begin, end) = ("<!-- changes -->\n", "<!-- end of the changes -->");
    let (head, rest) = text.split_once(begin).unwrap();
    let (shown, tail) = rest.split_once(end).unwrap();
    let table = table();
    if std::env::var_os("PUMICE_BLESS").is_some() {
        std::fs::write(root().join(PAGE), format!("{head}{begin}{table}{end}{tail}")).unwrap();
        return;
    }
    assert_eq!(shown, table, "PUMICE_BLESS=1 rewrites it");
}
