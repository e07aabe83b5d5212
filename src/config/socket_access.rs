//! Permissions of the Unix socket.

/// Who may connect to a Unix socket: connecting takes the permission to write its file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketAccess {
    /// Mode of the file.
    pub mode: u32,
    /// Owner of the file, by number; `None`: the process.
    pub user: Option<u32>,
    /// Group of the file, by number. `None`: group of the process.
    pub group: Option<u32>,
}

impl Default for SocketAccess {
    /// The permissions of the file's directory alone decide.
    fn default() -> Self {
        Self {
            mode: 0o666,
            user: None,
            group: None,
        }
    }
}
