//! Fuzzes [`aos_fuzz::journal_file`].
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| aos_fuzz::journal_file(data));
