//! Recordings of one world that was asked of several releases of Volcano, and earlier recordings that hold for a release.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::{Value, json};

use super::cluster::{members, text};
use super::files;

/// Release in recordings, and its name in documents.
pub(crate) const RELEASES: [(&str, &str); 3] = [
    ("v1.14.4", "volcano-1.14.4"),
    ("v1.15.1", "volcano-1.15.1"),
    ("ed72c7c81", "volcano-ed72c7c81"),
];
/// Release that was asked about one task at a time.
const OF_SINGLE_TASKS: &str = "v1.14.4";

/// Cases of one family by one release.
pub(crate) struct ReleaseCases {
    /// Family whose check judges the cases.
    pub(crate) family: String,
    /// Heading of the report.
    pub(crate) title: String,
    pub(crate) cases: Vec<Value>,
}

/// Cases of all recordings in `releases` below a directory, by release; those that hold for a release are the earlier
/// recordings beside it.
pub(crate) fn list(directory: &Path) -> Result<Vec<ReleaseCases>, String> {
    let mut all = Vec::new();
    let below = directory.join("releases");
    if !below.is_dir() {
        return Ok(all);
    }
    for path in files::list(&below)? {
        let Ok(recording) = files::read(&path) else {
            all.extend(existing(directory, &files::read_value(&path)?)?);
            continue;
        };
        let families: BTreeSet<String> = recording
            .cases
            .iter()
            .map(|case| family(case, &recording.family))
            .collect();
        for (release, name) in RELEASES {
            for family_name in &families {
                let own = recording
                    .cases
                    .iter()
                    .filter(|case| family(case, &recording.family) == *family_name);
                all.push(ReleaseCases {
                    title: format!("{} of {family_name} by {name}", recording.file),
                    cases: own.map(|case| of_release(case, release, name)).collect(),
                    family: family_name.clone(),
                });
            }
        }
    }
    Ok(all)
}

/// Family of a case: the file's, or for cases of all families that of the plugin.
fn family(case: &Value, of_file: &str) -> String {
    if of_file == "witnesses" {
        text(&case["policy"]["plugin"])
    } else {
        of_file.to_owned()
    }
}

/// A case as one release answers it.
fn of_release(case: &Value, release: &str, name: &str) -> Value {
    let mut case = case.clone();
    let mut expect = case["expect"][release].clone();
    while let Some(shared) = expect.as_str().and_then(|other| case["expect"].get(other)) {
        expect = shared.clone();
    }
    case["expect"] = expect;
    with_release(case, release, name)
}

fn with_release(mut case: Value, release: &str, name: &str) -> Value {
    without_unasked(&mut case["expect"], release);
    case["release"] = json!(name);
    case["cluster"]["release"] = json!(name);
    case
}

/// Takes out the results that were taken as equal although they differ.
fn without_unasked(expect: &mut Value, release: &str) {
    match expect {
        Value::Object(fields) => {
            fields.remove("hooks");
            if let (Some(rows), true) = (
                fields.get_mut("preemptive").and_then(Value::as_array_mut),
                release == OF_SINGLE_TASKS,
            ) {
                rows.retain(|row| members(&row[1]).len() == 1);
            }
            fields.values_mut().for_each(|value| without_unasked(value, release));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| without_unasked(value, release)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// Earlier recordings that hold for each earlier release.
fn existing(directory: &Path, list: &Value) -> Result<Vec<ReleaseCases>, String> {
    let mut all = Vec::new();
    for (family, own) in list["families"].as_object().into_iter().flatten() {
        let recording = files::read(&directory.join(format!("{family}.json.gz")))?;
        for (release, name) in RELEASES {
            let except: BTreeSet<String> = members(&own["differ"][release])
                .iter()
                .chain(members(&own["left_out"]))
                .map(text)
                .collect();
            if own["differ"].get(release).is_none() {
                continue;
            }
            let cases = recording
                .cases
                .iter()
                .filter(|case| !except.contains(&text(&case["name"])));
            all.push(ReleaseCases {
                title: format!("{} by {name}", recording.file),
                cases: cases.map(|case| with_release(case.clone(), release, name)).collect(),
                family: family.clone(),
            });
        }
    }
    Ok(all)
}
