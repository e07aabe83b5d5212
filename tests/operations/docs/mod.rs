//! Documents for people: their commands work, and they are complete.

mod commands;
mod compared;
mod complete;
mod facts;
mod guarantees;
mod links;
mod pending_pods;
mod plugin_pictures;
mod upgrades;

use std::path::{Path, PathBuf};

/// Text of a page, by its path from the root of the repository.
fn page(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap()
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// README and every page of `docs`, by path from the root.
fn pages() -> Vec<String> {
    let mut pages = vec!["README.md".to_owned()];
    let mut more: Vec<String> = files("docs", "md")
        .into_iter()
        .map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned())
        .collect();
    more.sort();
    pages.append(&mut more);
    pages
}

/// Every page for people, by path from the root.
fn every_page() -> Vec<String> {
    let mut pages = ["README.md", "SECURITY.md", "CONTRIBUTING.md", "CHANGELOG.md"]
        .map(str::to_owned)
        .to_vec();
    for folder in ["docs", "clients", "deploy", "crates"] {
        let found = files(folder, "md").into_iter();
        let own = found.map(|path| path.strip_prefix(root()).unwrap().to_str().unwrap().to_owned());
        pages.extend(own.filter(|name| !name.contains("/.") && !name.contains("/node_modules/")));
    }
    pages
}

/// Files below a folder with this ending.
fn files(folder: &str, ending: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![root().join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|own| own == ending) {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
