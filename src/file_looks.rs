//! Polling of files that change while the server runs. Content is used after two consecutive polls have read it, and is
//! tried once. A half-written file is therefore never loaded.

use std::path::{Path, PathBuf};

/// Error of a file that is read at the start and again when it changes: the file, what is wrong with it, and the remedy.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}: {message}", path.display())]
pub struct FileError {
    /// Path of the file.
    pub path: PathBuf,
    /// Problem and remedy.
    pub message: String,
}

impl FileError {
    pub(crate) fn new(path: &Path, message: impl Into<String>) -> Self {
        Self {
            path: path.to_owned(),
            message: message.into(),
        }
    }
}

/// State of the polls of some files.
#[derive(Debug)]
pub(crate) struct FileLooks<C> {
    /// Content that is in force.
    in_force: C,
    /// Content that was tried last, whether it was taken or not.
    tried: Option<C>,
    /// Content that was seen last; `None`: a file could not be read.
    seen: Option<C>,
}

/// Result of one poll.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum FileLook<C, E> {
    /// Nothing to do.
    Nothing,
    /// The files cannot be read, and not only for a moment, in which they may be being replaced.
    Unreadable(E),
    /// The files have the active content.
    InForce,
    /// The files have other content, which is to be tried.
    Changed(C),
}

impl<C: Clone + PartialEq> FileLooks<C> {
    /// Looks that begin with the content in force.
    pub(crate) fn new(in_force: C) -> Self {
        Self {
            seen: Some(in_force.clone()),
            tried: None,
            in_force,
        }
    }

    /// Takes what a look read.
    pub(crate) fn observe<E>(&mut self, read: Result<C, E>) -> FileLook<C, E> {
        let content = match read {
            Ok(content) => content,
            Err(error) => {
                self.tried = None;
                return match self.seen.take() {
                    Some(_) => FileLook::Nothing,
                    None => FileLook::Unreadable(error),
                };
            }
        };
        let is_stable = self.seen.as_ref() == Some(&content);
        let look = if is_stable && content == self.in_force {
            FileLook::InForce
        } else if is_stable && self.tried.as_ref() != Some(&content) {
            self.tried = Some(content.clone());
            FileLook::Changed(content.clone())
        } else {
            FileLook::Nothing
        };
        self.seen = Some(content);
        look
    }

    /// The content of the last change is in force.
    pub(crate) fn put_in_force(&mut self, content: C) {
        self.in_force = content;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_is_tried_once_when_two_looks_saw_it() {
        let mut looks = FileLooks::new("old");
        let mut look = |read: Result<&'static str, &'static str>, expected: FileLook<&str, &str>| {
            assert_eq!(looks.observe(read), expected, "{read:?}");
        };
        look(Ok("old"), FileLook::InForce);
        look(Ok("half"), FileLook::Nothing);
        look(Ok("new"), FileLook::Nothing);
        look(Ok("new"), FileLook::Changed("new"));
        look(Ok("new"), FileLook::Nothing);
        look(Err("gone"), FileLook::Nothing);
        look(Err("gone"), FileLook::Unreadable("gone"));
        look(Ok("new"), FileLook::Nothing);
        look(Ok("new"), FileLook::Changed("new"));
        look(Ok("old"), FileLook::Nothing);
        look(Ok("old"), FileLook::InForce);
        looks.put_in_force("new");
        assert_eq!(looks.observe::<&str>(Ok("new")), FileLook::Nothing);
        assert_eq!(looks.observe::<&str>(Ok("new")), FileLook::InForce);
    }
}
