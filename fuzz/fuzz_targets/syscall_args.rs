//! Fuzzes [`aos_fuzz::syscall_args`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aos_fuzz::syscall_args(data));
