//! The binary `aos`; everything is in the library beside it.

fn main() {}
