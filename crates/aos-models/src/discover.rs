//! Finding models: servers on this machine, and keys in the environment.
