//! Finds the recordings: compressed ones of this project, or a directory of plain ones.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// File of recorded cases.
pub(crate) struct VectorFile {
    /// Name of the file, for messages.
    pub(crate) file: String,
    /// Family that the file names.
    pub(crate) family: String,
    /// Cases of the file.
    pub(crate) cases: Vec<Value>,
}

/// Directory to run: `PUMICE_VECTORS`, else the one in the project.
pub(crate) fn directory() -> PathBuf {
    std::env::var_os("PUMICE_VECTORS").map_or_else(
        || Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors"),
        PathBuf::from,
    )
}

/// Recordings in a directory, by file name.
///
/// # Errors
/// The directory cannot be listed.
pub(crate) fn list(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(directory).map_err(|error| format!("{}: {error}", directory.display()))?;
    let mut files = Vec::new();
    for entry in entries {
        let path = entry
            .map_err(|error| format!("{}: {error}", directory.display()))?
            .path();
        let name = path.to_string_lossy();
        if name.ends_with(".json") || name.ends_with(".json.gz") {
            files.push(path);
        }
    }
    files.sort();
    Ok(files)
}

/// Reads one recording.
///
/// # Errors
/// The file cannot be read, or is not a recording.
pub(crate) fn read(path: &Path) -> Result<VectorFile, String> {
    let mut value = read_value(path)?;
    let family = value["family"].as_str().map(str::to_owned);
    let cases = value.get_mut("cases").and_then(Value::as_array_mut).map(std::mem::take);
    let (Some(family), Some(cases)) = (family, cases) else {
        return Err(format!("{}: has no `family` or no `cases`", path.display()));
    };
    let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    Ok(VectorFile { file, family, cases })
}

/// Reads the content of a recording.
///
/// # Errors
/// The file cannot be read, or is not JSON.
pub(crate) fn read_value(path: &Path) -> Result<Value, String> {
    let problem = |what: &dyn std::fmt::Display| format!("{}: {what}", path.display());
    let mut text = String::new();
    let mut file = File::open(path).map_err(|error| problem(&error))?;
    if path.extension().is_some_and(|extension| extension == "gz") {
        flate2::read::MultiGzDecoder::new(file)
            .read_to_string(&mut text)
            .map_err(|error| problem(&error))?;
    } else {
        file.read_to_string(&mut text).map_err(|error| problem(&error))?;
    }
    serde_json::from_str(&text).map_err(|error| problem(&error))
}
