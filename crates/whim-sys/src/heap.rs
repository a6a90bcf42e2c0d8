//! The C library's heap.

/// Lets all threads of this process share one arena. For one whose threads come and go and do little at
/// a time: else each touches an arena of its own, of which nothing is given back, and the process grows
/// for hours without holding anything more.
pub fn share() {
    // JUSTIFICATION: neither std nor nix offers mallopt.
    // SAFETY: it changes a parameter of the allocator, under the allocator's own lock.
    let done = unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
    // Other C libraries may not know the parameter; nothing depends on it.
    let _ = done;
}
