//! Parts of the logs that several servers share, whichever service holds them: authors of entries, and rules of safety.

use std::fmt;

use super::{LogEntry, StoredContent};

/// Bytes in front of an entry: its author and its number of parts.
const ENTRY_FRONT_BYTES: usize = 24;

/// Author of an entry: a server since its start, and the number of its attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntryAuthor {
    /// Number that the server drew at its start.
    pub server: u64,
    /// Number of its attempt to append: 1, 2, 3, …
    pub attempt: u64,
}

impl fmt::Display for EntryAuthor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}{:016x}", self.server, self.attempt)
    }
}

/// Entry as it is stored at its place: the author, and the bytes or the number of parts that hold them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EntryValue {
    /// Server that appended the entry.
    pub author: EntryAuthor,
    /// Number of parts that hold the entry; 0: the value itself does.
    pub parts: u64,
    /// Bytes of the entry, if it has no parts.
    pub bytes: Vec<u8>,
}

impl EntryValue {
    /// Value as bytes.
    pub fn encode(&self) -> Vec<u8> {
        let numbers = [self.author.server, self.author.attempt, self.parts];
        let front: Vec<u8> = numbers.iter().flat_map(|number| number.to_le_bytes()).collect();
        [&front, &*self.bytes].concat()
    }

    /// Decodes a value. `None`: the bytes are truncated.
    pub fn decode(value: &[u8]) -> Option<Self> {
        let (front, bytes) = value.split_first_chunk::<ENTRY_FRONT_BYTES>()?;
        let (numbers, _) = front.as_chunks::<8>();
        let [server, attempt, parts] = *<&[[u8; 8]; 3]>::try_from(numbers).ok()?;
        Some(Self {
            author: EntryAuthor {
                server: u64::from_le_bytes(server),
                attempt: u64::from_le_bytes(attempt),
            },
            parts: u64::from_le_bytes(parts),
            bytes: bytes.to_vec(),
        })
    }
}

/// Rules of safety. Tests leave one out to prove that they notice a broken promise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[doc(hidden)]
pub struct AppendRules {
    compares: bool,
    waits: bool,
}

impl AppendRules {
    /// Rules without some that a test leaves out.
    #[cfg(any(test, feature = "test-doors"))]
    pub fn new(compares: bool, waits: bool) -> Self {
        Self { compares, waits }
    }

    /// True if an entry is appended only onto the head that it was evaluated against.
    pub fn compares(self) -> bool {
        self.compares
    }

    /// True if an entry whose outcome is not known is not acknowledged.
    pub fn waits(self) -> bool {
        self.waits
    }
}

impl Default for AppendRules {
    fn default() -> Self {
        Self {
            compares: true,
            waits: true,
        }
    }
}

impl StoredContent {
    /// Applies an entry of another server. Checks that the entry follows this content and results in the head that it
    /// names.
    ///
    /// # Errors
    /// The heads differ. The message has both.
    #[doc(hidden)]
    pub fn apply_checked(&mut self, entry: &LogEntry, rules: &AppendRules) -> Result<(), String> {
        let here = self.head();
        if entry.before != here && rules.compares() {
            let before = entry.before;
            return Err(format!("an entry was appended onto {before}, and follows {here}"));
        }
        self.apply(&entry.writes);
        let (reached, after) = (self.head(), entry.after);
        if reached == after || !rules.compares() {
            return Ok(());
        }
        Err(format!("an entry leads to {reached}, and should lead to {after}"))
    }
}
