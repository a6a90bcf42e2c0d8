//! The named exceptions among writable shared memory: files of one writer.

/// Whether a file is one in which a Java VM, or Mono, of one of these ids keeps counters about itself.
pub(crate) fn are_in(name: &str, ids: &[i32]) -> bool {
    let (path, file) = name.rsplit_once('/').unwrap_or_default();
    let is_own = |id: &str| id.parse::<i32>().is_ok_and(|id| ids.contains(&id));
    if let Some(id) = file.strip_prefix("mono.") {
        return path == "/dev/shm" && is_own(id);
    }
    let directory = path.rsplit('/').next().unwrap_or_default();
    // Trap: shared-memory-of-one-process
    directory.starts_with("hsperfdata_") && is_own(file)
}
