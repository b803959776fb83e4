//! Memory of this process.

/// Gives what is free back to the kernel. The C library keeps it otherwise, for the next time: after
/// many changes at once that may be as much as everything that is in use. Takes milliseconds.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "no crate wraps it")]
pub fn give_back() {
    // SAFETY: takes a number, no memory of ours, and may be called by any thread at any time.
    unsafe { libc::malloc_trim(0) };
}

/// Other C libraries give it back by themselves.
#[cfg(not(target_env = "gnu"))]
pub fn give_back() {}

/// One heap for all threads, to be called before the first of them starts. The C library gives each
/// thread its own otherwise, and each keeps what its thread once needed; threads that mostly wait
/// hardly ever meet at the lock of a common one.
#[cfg(target_env = "gnu")]
#[allow(unsafe_code, reason = "no crate wraps it")]
pub fn use_one_heap() {
    // SAFETY: takes two numbers. A refusal leaves more heaps, which is no error.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 1) };
}

/// Other C libraries have one.
#[cfg(not(target_env = "gnu"))]
pub fn use_one_heap() {}
