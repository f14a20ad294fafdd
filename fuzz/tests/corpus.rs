//! Runs every target over its corpus without a fuzzer: each file as it is, cut at each of its bytes (or a thousand of
//! them), and with each bit of one byte in a while turned over.

use std::path::Path;

#[test]
fn every_target_survives_its_corpus() {
    for (name, target) in aos_fuzz::TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        let mut files = 0;
        for file in std::fs::read_dir(&folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display())) {
            let data = std::fs::read(file.unwrap().path()).unwrap();
            files += 1;
            target(&data);
            let step = (data.len() / 1000).max(1);
            for at in (0..data.len()).step_by(step) {
                target(&data[..at]);
                let mut turned = data.clone();
                turned[at] ^= 1 << (at % 8);
                target(&turned);
            }
        }
        assert!(files >= 5, "{name} has {files} files");
    }
}

#[test]
fn the_corpus_is_what_it_is_meant_to_be() {
    let whole = |name: &str| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
        std::fs::read_dir(folder).unwrap().map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect::<Vec<_>>()
    };
    let entries = whole("entry_json");
    let read = entries.iter().filter(|data| serde_json::from_slice::<aos_abi::Entry>(data).is_ok()).count();
    assert!(read >= 13, "{read} entries can be read");
    let calls = whole("syscall_args");
    let parse = |data: &Vec<u8>| {
        let name = aos_abi::Name::ALL[usize::from(data[0])];
        aos_abi::Syscall::parse(name.as_str(), &String::from_utf8_lossy(&data[1..])).is_ok()
    };
    let read = calls.iter().filter(|data| parse(data)).count();
    assert!(read >= 35, "{read} calls can be read");
}
