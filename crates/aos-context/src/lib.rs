//! What a process's window looks like.
