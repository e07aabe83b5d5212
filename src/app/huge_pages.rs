//! Pages of 4 KiB for the whole process.
//!
//! The allocator asks the kernel for pages of 2 MiB where it may. One small block that lives keeps all of such a page
//! resident, so that a server that had held a thousand connections kept a third of its memory for nothing.

/// Asks the kernel for no huge pages from now on. Nothing depends on it but the memory that the process holds.
pub(super) fn decline() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "the kernel may give huge pages; the server may hold more memory than it needs");
    }
}
