//! Time of day of one server, which a test can set while the server runs.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Time of day of a server, ahead of the machine's by a number of seconds.
pub(super) struct JumpingClock {
    file: PathBuf,
}

impl JumpingClock {
    pub(super) fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let file = folder().join(format!("clock-{}-{number}", std::process::id()));
        std::fs::write(&file, 0_i64.to_ne_bytes()).unwrap();
        Self { file }
    }

    /// Sets how far it is ahead; negative: behind.
    pub(super) fn set_ahead(&self, seconds: i64) {
        // The server has mapped these bytes: they are written in place.
        let mut file = std::fs::OpenOptions::new().write(true).open(&self.file).unwrap();
        std::io::Write::write_all(&mut file, &seconds.to_ne_bytes()).unwrap();
    }

    /// Variables of the environment of a server that lives by this clock.
    pub(super) fn environment(&self) -> [(&str, &str); 2] {
        [
            ("LD_PRELOAD", library().to_str().unwrap()),
            ("CLOCK_AHEAD", self.file.to_str().unwrap()),
        ]
    }
}

impl Drop for JumpingClock {
    fn drop(&mut self) {
        drop(std::fs::remove_file(&self.file));
    }
}

fn folder() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// Library that stands before the C library.
fn library() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let library = folder().join(format!("clock-{}.so", std::process::id()));
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/durable/replicas/clock.c");
        let mut command = Command::new("cc");
        command
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(source);
        assert!(command.status().unwrap().success(), "cc builds the clock");
        library
    })
}
