//! How the program ends.

/// Ends the process without running the exit handlers of the libraries in it.
///
/// Threads of drivers may be at work still: at a second Ctrl-C, or where a device hangs and its thread was left to
/// itself. Exit handlers tear down what they use (LLVM's state, in Mesa's software driver), and the program would crash
/// instead of ending. On Windows the other threads have ended by the time handlers run.
pub(super) fn exit_at_once(code: u8) -> ! {
    #[cfg(unix)]
    // SAFETY: `_exit` has no preconditions; nothing of ours waits for an exit handler, files are closed by the system.
    unsafe {
        libc::_exit(code.into())
    }
    #[cfg(not(unix))]
    std::process::exit(code.into())
}
