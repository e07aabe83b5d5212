//! Pages of 4 KiB for the whole process.
//!
//! By default the allocator requests pages of 2 MiB from the kernel. One small live block keeps the whole page
//! resident. For example, after a thousand closed connections a third of a server's memory was still resident.

/// Asks the kernel for no huge pages from now on. Nothing depends on it but the memory that the process holds.
pub(super) fn decline() {
    #[cfg(target_os = "linux")]
    if let Err(error) = rustix::thread::disable_transparent_huge_pages(true) {
        tracing::warn!(%error, "the kernel may give huge pages; the server may hold more memory than it needs");
    }
}
