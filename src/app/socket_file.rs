//! Unix socket of the gRPC services, and its file.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::task::{Context, Poll};

use tokio::net::{UnixListener, UnixStream};

/// Unix socket and its file, which is removed with the socket.
#[derive(Debug)]
pub(super) struct SocketFile {
    listener: UnixListener,
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl SocketFile {
    /// Listens on a path. A socket file that no process listens on, as a killed process leaves it, is replaced. Any
    /// other file in that place is left alone.
    pub(super) async fn bind(path: &Path, mode: u32) -> io::Result<Self> {
        match std::fs::symlink_metadata(path) {
            Ok(metadata) if metadata.file_type().is_socket() => {
                // Whatever else the error is, such as that of a queue that is full, somebody listens.
                let connected = UnixStream::connect(path).await;
                if !connected.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                    let message = "another process listens on it";
                    return Err(io::Error::new(io::ErrorKind::AddrInUse, message));
                }
                tracing::warn!(path = %path.display(), "a socket left behind is replaced");
                std::fs::remove_file(path)?;
            }
            Ok(_) => {
                let message = "a file that is not a socket has this name";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, message));
            }
            Err(_) => {}
        }
        let listener = UnixListener::bind(path)?;
        let bound = Self {
            listener,
            identity: file_identity(path),
            path: path.to_owned(),
        };
        // The umask would keep other users out, such as the scheduler in another container.
        std::fs::set_permissions(path, Permissions::from_mode(mode))?;
        Ok(bound)
    }

    /// Next connection.
    pub(super) fn poll_accept(&self, context: &mut Context<'_>) -> Poll<io::Result<UnixStream>> {
        self.listener
            .poll_accept(context)
            .map(|accepted| accepted.map(|(stream, _)| stream))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        // Another process may have created its own socket there.
        if self.identity.is_some() && file_identity(&self.path) == self.identity {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn file_identity(path: &Path) -> Option<(u64, u64)> {
    use std::os::unix::fs::MetadataExt as _;
    let metadata = std::fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_socket_whose_queue_is_full_is_not_replaced() {
        let path = std::env::temp_dir().join(format!("pumice-busy-{}.sock", std::process::id()));
        let listener = SocketFile::bind(&path, 0o666).await.unwrap();
        let mut waiting = Vec::new();
        // Nobody accepts: the queue fills up, and the next caller is told to come back.
        while let Ok(stream) = UnixStream::connect(&path).await {
            waiting.push(stream);
            assert!(waiting.len() < 10_000);
        }
        let second = SocketFile::bind(&path, 0o666).await;
        assert_eq!(second.unwrap_err().kind(), io::ErrorKind::AddrInUse);
        drop(listener);
        assert!(!path.exists());
        // What a killed process leaves is replaced.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(SocketFile::bind(&path, 0o666).await.is_ok());
    }
}
