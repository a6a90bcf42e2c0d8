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

/// Gives the kernel back what is free in the heap. For when much was held for a moment, such as an image:
/// what lies behind it would keep it in the process.
pub fn give_back() {
    // JUSTIFICATION: neither std nor nix offers malloc_trim.
    // SAFETY: it touches nothing but what is free, under the allocator's own lock.
    let given = unsafe { libc::malloc_trim(0) };
    // There may have been nothing.
    let _ = given;
}
