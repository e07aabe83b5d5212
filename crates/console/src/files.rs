//! Texts of files and of standard input.

use std::io::Read as _;
use std::path::Path;

use crate::CommandError;

/// The text of a file; `-` is standard input.
pub fn read_text(path: &Path) -> Result<String, CommandError> {
    if path == Path::new("-") {
        let mut text = String::new();
        std::io::stdin().lock().read_to_string(&mut text)?;
        return Ok(text);
    }
    std::fs::read_to_string(path).map_err(|error| CommandError::file_error(path, &error))
}
