//! Encoders: vectors beside those of another implementation, and folders that cannot be used.

use std::path::Path;
use std::time::Duration;

use aos_abi::syscall::CallSet;
use serde_json::json;

use super::folder::{Folder, WINDOW, safetensors, tensors};
use crate::{Embedded, Fault, Options, Runtime};

fn runtime(folder: &Path) -> Runtime {
    Runtime::new(Options::new(folder.to_owned()))
}

fn embed(runtime: &Runtime, texts: &[&str]) -> Result<Vec<Embedded>, Fault> {
    let texts = texts.iter().map(|text| (*text).to_owned()).collect();
    runtime.embed(&runtime.file("small"), texts)?.blocking_recv().expect("the thread lives")
}

/// A home with these files as its model `small`.
fn home(folder: &Folder) -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    folder.write(&home.path().join("small"));
    home
}

/// What `BertModel` of transformers 4.38 on PyTorch 1.13 makes of these texts with the same weights: the tokens, and
/// numbers 0, 1, 2, 15, 30 and 31 of the mean over all tokens, divided by its length, texts read one by one.
const REFERENCE: [(&str, usize, [f32; 6]); 5] = [
    ("the cat reads", 6, [-0.199_931, -0.203_26, -0.225_202, 0.110_37, -0.051_82, -0.082_291]),
    ("The CAT, reads a zebra!", 10, [-0.258_692, 0.065_16, -0.040_652, 0.254_889, 0.063_837, -0.187_632]),
    ("Café", 3, [-0.188_269, -0.138_641, -0.052_143, 0.256_045, -0.033_11, -0.139_905]),
    ("", 2, [-0.110_774, -0.124_875, -0.075_36, 0.214_812, -0.061_474, -0.163_352]),
    ("the cat the cat the cat the cat", 10, [-0.365_34, -0.084_852, 0.033_453, 0.125_256, 0.010_085, -0.099_64]),
];

#[test]
fn vectors_are_those_of_another_implementation() {
    let home = home(&Folder::new());
    let runtime = runtime(home.path());
    assert_eq!(runtime.models(), ["small"]);
    Runtime::check(&runtime.file("small")).unwrap();
    let made = embed(&runtime, &REFERENCE.map(|(text, ..)| text)).unwrap();
    for ((text, tokens, numbers), made) in REFERENCE.iter().zip(&made) {
        assert_eq!((made.tokens, made.numbers.len()), (*tokens, 32), "{text}");
        for (nth, number) in [0, 1, 2, 15, 30, 31].into_iter().zip(numbers) {
            assert!((made.numbers[nth] - number).abs() < 2e-6, "{text}: {nth} is {}, not {number}", made.numbers[nth]);
        }
        let length: f32 = made.numbers.iter().map(|number| number * number).sum();
        assert!((length - 1.0).abs() < 1e-5, "{length}");
    }
    assert!(embed(&runtime, &[]).unwrap().is_empty());
}

#[test]
fn what_a_text_gets_does_not_depend_on_the_others() {
    let home = home(&Folder::new());
    let runtime = runtime(home.path());
    // More than one piece, of texts of every length.
    let texts: Vec<String> = (0..300).map(|nth| "cat ".repeat(nth % (WINDOW - 1))).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let all = embed(&runtime, &texts).unwrap();
    assert_eq!(all.len(), 300);
    for nth in [0, 7, 14, 299] {
        let alone = embed(&runtime, &texts[nth..=nth]).unwrap();
        let far = alone[0].numbers.iter().zip(&all[nth].numbers).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(far < 1e-5 && alone[0].tokens == all[nth].tokens, "text {nth}: {far}");
    }
}

#[test]
fn a_text_is_read_whole_or_refused_and_holds_no_control_tokens() {
    let home = home(&Folder::new());
    let runtime = runtime(home.path());
    let longest = "cat ".repeat(WINDOW - 2);
    assert_eq!(embed(&runtime, &[&longest]).unwrap()[0].tokens, WINDOW);
    let fault = embed(&runtime, &["cat", &(longest + "cat")]).unwrap_err();
    assert_eq!(fault, Fault::LongText { tokens: WINDOW + 1, window: WINDOW });
    // Blanks are no tokens, and yet so many are not looked at.
    let blank = |bytes: usize| " ".repeat(bytes - 3) + "cat";
    assert_eq!(embed(&runtime, &[&blank(WINDOW * 256)]).unwrap()[0].tokens, 3);
    let fault = embed(&runtime, &["cat", &blank(WINDOW * 256 + 1)]).unwrap_err();
    assert_eq!(fault, Fault::HugeText { bytes: WINDOW * 256 + 1, most: WINDOW * 256 });
    // The name of a control token is four unknown words or fewer, and never that token.
    let told = embed(&runtime, &["the [SEP] cat", "the ? ? ? cat"]).unwrap();
    assert_eq!((told[0].tokens, &told[0].numbers), (7, &told[1].numbers));
}

/// The memory grows with the square of a text's tokens, times the heads.
#[test]
fn a_text_that_takes_too_much_memory_is_refused_though_there_are_positions() {
    let mut folder = Folder::new();
    folder.config["max_position_embeddings"] = json!(2000);
    folder.config["num_attention_heads"] = json!(32);
    let mut tensors = tensors();
    let (_, shape, numbers) =
        tensors.iter_mut().find(|(name, ..)| name == "embeddings.position_embeddings.weight").unwrap();
    shape[0] = 2000;
    numbers.resize(2000 * 32, 0.5);
    folder.weights = safetensors(&tensors);
    let home = home(&folder);
    let fault = embed(&runtime(home.path()), &[&"cat ".repeat(1447)]).unwrap_err();
    assert_eq!(fault, Fault::LongText { tokens: 1449, window: 1448 });
}

#[test]
fn a_folder_that_cannot_be_used_says_why() {
    let fault = |change: &dyn Fn(&mut Folder)| {
        let mut folder = Folder::new();
        change(&mut folder);
        let home = home(&folder);
        let fault = embed(&runtime(home.path()), &["cat"]).unwrap_err();
        let checked = Runtime::check(&home.path().join("small")).unwrap_err();
        assert_eq!(checked.to_string(), fault.to_string());
        fault.to_string()
    };
    type Change = Box<dyn Fn(&mut Folder)>;
    let without = |name: &'static str| {
        move |folder: &mut Folder| {
            folder.weights = safetensors(&{
                let mut tensors = tensors();
                tensors.retain(|(known, ..)| known != name);
                tensors
            })
        }
    };
    let set = |key: &'static str, value: serde_json::Value| -> Change {
        Box::new(move |folder| folder.config[key] = value.clone())
    };
    let table: Vec<(Change, &str)> = vec![
        (set("model_type", json!("roberta")), "its model_type is not `bert`"),
        (set("hidden_act", json!("relu")), "its hidden_act is not `gelu`"),
        (set("hidden_size", json!(0)), "hidden_size"),
        (set("hidden_size", json!(-1)), "hidden_size"),
        (set("num_attention_heads", json!(5)), "no 5 heads"),
        (set("num_hidden_layers", json!(3)), "it has no tensor encoder.layer.2."),
        (set("vocab_size", json!(13)), "the shape [12, 32], [13, 32] is needed"),
        (Box::new(without("embeddings.LayerNorm.bias")), "it has no tensor embeddings.LayerNorm.bias"),
        (Box::new(|folder| folder.weights.truncate(5000)), "is no whole safetensors file"),
        (Box::new(|folder| folder.weights = vec![255; 64]), "is no whole safetensors file"),
        (Box::new(|folder| folder.weights.clear()), "is no whole safetensors file"),
        (Box::new(|folder| folder.tokenizer = json!({})), "tokenizer.json is no whole JSON file"),
        (Box::new(|folder| folder.tokenizer["model"]["vocab"]["dog"] = json!(12)), "knows tokens that it does not"),
        (Box::new(|folder| folder.tokenizer["post_processor"] = json!(null)), "nothing of an empty text"),
    ];
    for (change, words) in table {
        let told = fault(&change);
        assert!(told.contains(words), "{words}: {told}");
    }
}

#[test]
fn a_folder_of_another_kind_says_what_it_is() {
    let home = home(&Folder::new());
    let folder = home.path().join("small");
    std::fs::create_dir(folder.join("1_Pooling")).unwrap();
    let pooling = folder.join("1_Pooling/config.json");
    let modes = |mean: bool| json!({ "word_embedding_dimension": 32, "pooling_mode_cls_token": !mean, "pooling_mode_mean_tokens": mean });
    std::fs::write(&pooling, modes(true).to_string()).unwrap();
    Runtime::check(&folder).unwrap();
    std::fs::write(&pooling, modes(false).to_string()).unwrap();
    let fault = Runtime::check(&folder).unwrap_err();
    assert!(fault.to_string().contains("not the mean of all tokens"), "{fault}");
    std::fs::remove_file(folder.join("tokenizer.json")).unwrap();
    std::fs::remove_file(&pooling).unwrap();
    assert_eq!(Runtime::check(&folder).unwrap_err(), Fault::Absent(folder.join("tokenizer.json")));

    // A file that answers makes no vectors, and the other way round.
    let runtime = runtime(home.path());
    super::gguf::Gguf::chat(1).write(&home.path().join("chat.gguf"));
    let fault =
        runtime.embed(&runtime.file("chat"), vec!["cat".to_owned()]).unwrap().blocking_recv().unwrap().unwrap_err();
    assert!(fault.to_string().contains("answers and no vectors"), "{fault}");
    let fault = runtime.ask(&runtime.file("small"), None, super::prompt("hello", CallSet::EMPTY, 8)).unwrap();
    let fault = fault.reply.blocking_recv().unwrap().unwrap_err();
    assert!(fault.to_string().contains("vectors of texts and no answers"), "{fault}");
    let fault = runtime.embed(&runtime.file("none"), vec![]).unwrap().blocking_recv().unwrap().unwrap_err();
    assert_eq!(fault, Fault::Absent(home.path().join("none.gguf")));
}

#[test]
fn an_encoder_is_let_go_when_nobody_asks_and_loaded_again() {
    let home = home(&Folder::new());
    let options = Options { idle: Duration::ZERO, ..Options::new(home.path().to_owned()) };
    let runtime = Runtime::new(options);
    let first = embed(&runtime, &["cat"]).unwrap();
    // Who waits no longer is not computed for, and takes nobody along.
    drop(runtime.embed(&runtime.file("small"), vec!["cat".to_owned(); 200]).unwrap());
    // The thread may have ended in the very moment of asking; then it is asked again, as for anything that passes.
    let again = || runtime.embed(&runtime.file("small"), vec!["cat".to_owned()]).unwrap().blocking_recv().ok();
    assert_eq!(std::iter::repeat_with(again).flatten().next().unwrap().unwrap(), first);
}
