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
