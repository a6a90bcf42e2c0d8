//! The C library's heap.

/// Lets all threads of this process share one arena. For a process whose threads come and go and do
/// little at a time: otherwise each thread uses an arena of its own, which gives nothing back, and
/// the process grows for hours although it does not hold more.
pub fn share() {
    // JUSTIFICATION: neither std nor nix offers mallopt.
    // SAFETY: it changes a parameter of the allocator, under the allocator's own lock.
    let done = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    // Other C libraries may not know the parameter; nothing depends on it.
    let _ = done;
}

/// Has the heap keep what is free, until [`give_back`], for a process that sends memory in pieces: by itself the C library
/// gives the kernel back what one piece took, and has it zeroed again for the next one, or does not, by what was freed
/// before.
pub fn keep() {
    /// More than a piece takes with all copies of it on its way, in bytes.
    const KEPT: libc::c_int = 16 << 20;
    /// Larger ones are mapped one by one.
    const PIECE: libc::c_int = 4 << 20;
    for (parameter, value) in [
        (libc::M_TRIM_THRESHOLD, KEPT),
        (libc::M_MMAP_THRESHOLD, PIECE),
    ] {
        // JUSTIFICATION: as above.
        // SAFETY: as above.
        let done = unsafe { libc::mallopt(parameter, value) };
        let _ = done;
    }
}

/// Gives free memory of the heap back to the kernel. To be called after much was held for a moment,
/// such as an image: what was allocated behind it would keep that memory in the process.
pub fn give_back() {
    // JUSTIFICATION: neither std nor nix offers malloc_trim.
    // SAFETY: it touches nothing but what is free, under the allocator's own lock.
    let given = unsafe { libc::malloc_trim(0) };
    // There may have been nothing to give back.
    let _ = given;
}
