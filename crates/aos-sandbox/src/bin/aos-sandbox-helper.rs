//! The helper as a program of its own: what the tests start, and what an embedder that cannot start itself again ships.

fn main() {
    aos_sandbox::helper_main()
}
