//! Files that users name, when they are not what they should be: endless, enormous, compressed, in another encoding,
//! damaged.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use everygpu::config::{LoadedData, RunConfig, RunFile};
use everygpu::error::Result;
use everygpu::run::{CheckpointPolicy, DataCard, RunFolder};
use everygpu::tensor::Named;
use serde_json::Value;

fn config(dir: &Path, data: &str) -> RunConfig {
    let text = format!("[data]\n{data}\n[model]\nlayers = [{{ kind = \"linear\", out = 2 }}]\n");
    RunConfig::parse(&text, "run.toml", dir, &[]).expect("a run file")
}

fn load(dir: &Path, data: &str) -> Result<LoadedData> {
    let config = config(dir, data);
    config.data.load(0, &config.model.loss)
}

fn fails(dir: &Path, data: &str, parts: &[&str]) {
    let error = load(dir, data).expect_err(data).to_string();
    parts.iter().for_each(|part| assert!(error.contains(part), "'{part}' is not in: {error}"));
}

fn folder() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().to_owned();
    (folder, path)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).expect("memory");
    encoder.finish().expect("memory")
}

/// An idx file of unsigned bytes.
fn idx(dims: &[u32], bytes: &[u8]) -> Vec<u8> {
    let sizes = dims.iter().flat_map(|dim| dim.to_be_bytes());
    [0, 0, 8, dims.len() as u8].into_iter().chain(sizes).chain(bytes.iter().copied()).collect()
}

const CSV: &str = "format = \"csv\"\npath = \"t\"\nvalidation = \"none\"\n";
const TEXT: &str = "format = \"text\"\npath = \"t\"\nlength = 2\nvalidation = \"none\"\n";
const IDX: &str = "format = \"idx\"\nimages = \"t\"\nlabels = \"l\"\nvalidation = \"none\"\n";

#[test]
fn what_is_compressed_is_bounded_by_a_limit_that_can_be_set() {
    let (_folder, dir) = folder();
    fs::write(dir.join("t"), gzip(&[&b"x,y\n"[..], &b"1,a\n".repeat(50_000)].concat())).unwrap();
    fails(
        &dir,
        &format!("{CSV}size_limit = \"100KiB\""),
        &["t: it holds more than 102400 bytes", "raise data.size_limit"],
    );
    assert_eq!(load(&dir, &format!("{CSV}size_limit = \"200KiB\"")).unwrap().train.len(), 50_000);
    // Zeros are no table: known before the limit.
    fs::write(dir.join("t"), gzip(&[0; 1 << 20])).unwrap();
    fails(&dir, CSV, &["t: byte 1 is 0: this is no text"]);
    fs::write(dir.join("l"), idx(&[2], &[0, 1])).unwrap();
    fs::write(dir.join("t"), gzip(&idx(&[2, 300, 300], &[7; 180_000]))).unwrap();
    fails(&dir, &format!("{IDX}size_limit = 100000"), &["t: it holds more than 100000 bytes"]);
    assert_eq!(load(&dir, IDX).unwrap().train.len(), 2);
    // A text that is mapped takes no memory; one that is read does.
    fs::write(dir.join("t"), "abc".repeat(100)).unwrap();
    fails(&dir, &format!("{TEXT}tokenizer = \"characters\"\nsize_limit = 299"), &["t: it holds more than 299 bytes"]);
    assert!(load(&dir, &format!("{TEXT}size_limit = 299")).is_ok());
}

/// A pipe would block for ever, and a device never end.
#[cfg(unix)]
#[test]
fn pipes_and_devices_are_refused_at_once() {
    use std::os::unix::ffi::OsStrExt;

    use everygpu::checkpoint::{Match, NameMap, read_weights};

    let (_folder, dir) = folder();
    let pipe = dir.join("pipe");
    let name = std::ffi::CString::new(pipe.as_os_str().as_bytes()).unwrap();
    // SAFETY: the name is a string that ends in 0.
    assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
    fs::write(dir.join("t"), "abc").unwrap();
    let refused = "expected a regular file, got a pipe or a device";
    for path in [pipe.to_str().unwrap(), "/dev/zero", "/dev/null"] {
        for data in [CSV, TEXT, IDX] {
            fails(&dir, &data.replace("\"t\"", &format!("\"{path}\"")), &[path, refused]);
        }
        fails(
            &dir,
            &format!("{TEXT}tokenizer = \"characters\"").replace("\"t\"", &format!("\"{path}\"")),
            &[path, refused],
        );
        let weights = read_weights(Path::new(path), &Named::default(), &NameMap::default(), Match::Strict);
        assert!(weights.unwrap_err().to_string().contains(refused));
        assert!(RunFile::read(Path::new(path)).unwrap_err().to_string().contains(refused));
    }
    // In the place of files of a run.
    fs::rename(&pipe, dir.join("data.json")).unwrap();
    let card = RunFolder::read_json::<DataCard>(&dir, RunFolder::DATA);
    assert!(card.unwrap_err().to_string().contains(refused));
    fs::rename(dir.join("data.json"), dir.join("tokenizer.json")).unwrap();
    fails(&dir, &format!("{TEXT}tokenizer = \"tokenizer.json\""), &["tokenizer.json", refused]);
}

#[test]
fn a_byte_order_mark_is_no_token() {
    let (_folder, dir) = folder();
    for tokenizer in ["bytes", "characters"] {
        let keys = format!("{TEXT}tokenizer = \"{tokenizer}\"");
        fs::write(dir.join("t"), "abcab").unwrap();
        let plain = load(&dir, &keys).unwrap();
        fs::write(dir.join("m"), "\u{feff}abcab").unwrap();
        let marked = load(&dir, &keys.replace("\"t\"", "\"m\"")).unwrap();
        assert_eq!(marked.card, plain.card);
        assert_eq!(marked.train.gather(&[0, 1]).unwrap(), plain.train.gather(&[0, 1]).unwrap());
    }
}

#[test]
fn text_in_two_bytes_a_character_is_named() {
    let (_folder, dir) = folder();
    let wide = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<_>>();
    for text in ["\u{feff}x,y\n1,a\n2,b\n", "x,y\n1,a\n2,b\n"] {
        fs::write(dir.join("t"), wide(text)).unwrap();
        let told = "this is UTF-16 or UTF-32 text, expected UTF-8; save it as UTF-8";
        fails(&dir, CSV, &["t: ", told]);
        fails(&dir, &format!("{TEXT}tokenizer = \"characters\""), &["t: ", told]);
        assert!(RunFile::read(&dir.join("t")).unwrap_err().to_string().contains(told));
    }
}

#[test]
fn bytes_behind_the_end_of_compressed_data_are_told() {
    let (_folder, dir) = folder();
    let packed = gzip(b"x,y\n1,a\n2,b\n");
    fs::write(dir.join("t"), [&packed[..], b"0123456789"].concat()).unwrap();
    fails(&dir, CSV, &["t: there are bytes behind the end of the compressed data", "cut them off"]);
    fs::write(dir.join("t"), &packed[..packed.len() - 1]).unwrap();
    fails(&dir, CSV, &["t: the compressed file is cut short"]);
}

/// Copies of MNIST often have a dot where its own files have a dash.
#[test]
fn mnist_is_found_under_both_names() {
    let (_folder, dir) = folder();
    let keys = "format = \"mnist\"\ndir = \".\"";
    for part in ["train", "t10k"] {
        fs::write(dir.join(format!("{part}-images.idx3-ubyte")), idx(&[2, 1, 1], &[1, 2])).unwrap();
        fs::write(dir.join(format!("{part}-labels.idx1-ubyte.gz")), gzip(&idx(&[2], &[0, 1]))).unwrap();
    }
    let loaded = load(&dir, keys).unwrap();
    assert_eq!((loaded.train.len(), loaded.validation.unwrap().len()), (2, 2));
    fs::remove_file(dir.join("t10k-images.idx3-ubyte")).unwrap();
    fails(&dir, keys, &["t10k-images-idx3-ubyte: there is no such file, and no t10k-images.idx3-ubyte either"]);
}

/// One changed bit in `data.json` changed predictions.
#[test]
fn a_damaged_data_card_is_refused_and_an_older_one_is_not() {
    let (_folder, dir) = folder();
    fs::write(dir.join("t"), "x,y\n0.1,a\n2,b\n1e-3,b\n").unwrap();
    let card = load(&dir, &format!("{CSV}scale = \"standardize\"")).unwrap().card;
    let policy = CheckpointPolicy { every: 0, keep_last: 1, keep_best: 0 };
    let run = RunFolder::create(&dir, "run", policy).unwrap();
    run.write_json(RunFolder::DATA, &card).unwrap();
    let read = || RunFolder::read_json::<DataCard>(run.path(), RunFolder::DATA);
    assert_eq!(read().unwrap(), card);
    let file = run.path().join(RunFolder::DATA);
    let good = fs::read(&file).unwrap();
    let whole: Value = serde_json::from_slice(&good).unwrap();
    assert_eq!(whole["version"], 1);
    for at in 0..good.len() {
        let mut bytes = good.clone();
        bytes[at] ^= 1 << (at % 8);
        fs::write(&file, &bytes).unwrap();
        // White space means nothing.
        let same = serde_json::from_slice::<Value>(&bytes).is_ok_and(|value| value == whole);
        assert_eq!(read().is_ok(), same, "byte {at} of {}", String::from_utf8_lossy(&bytes));
    }
    let written = |body: &Value| fs::write(&file, body.to_string()).unwrap();
    let mut later = whole.clone();
    later["version"] = 2.into();
    written(&later);
    assert!(read().unwrap_err().to_string().contains("version 2 is of a later everygpu"));
    let mut older = whole;
    older.as_object_mut().unwrap().retain(|key, _| key != "version" && key != "crc32");
    written(&older);
    assert_eq!(read().unwrap(), card);
}

/// What a `tokenizer.json` says about single sentences is not for a text, and a text is always the same tokens.
#[cfg(feature = "bpe")]
#[test]
fn a_tokenizer_file_cuts_a_whole_text_the_same_each_time() {
    let (_folder, dir) = folder();
    let truncation = r#"{"direction":"Right","max_length":8,"strategy":"LongestFirst","stride":0}"#;
    let padding = r#"{"strategy":{"Fixed":99},"direction":"Right","pad_to_multiple_of":null,"pad_id":0,"pad_type_id":0,"pad_token":"a"}"#;
    fs::write(
        dir.join("tokenizer.json"),
        format!(
            r#"{{"version":"1.0","truncation":{truncation},"padding":{padding},"added_tokens":[],"normalizer":null,
            "pre_tokenizer":null,"post_processor":null,"decoder":null,"model":{{"type":"BPE","dropout":0.5,"unk_token":null,
            "continuing_subword_prefix":null,"end_of_word_suffix":null,"fuse_unk":false,"byte_fallback":false,
            "vocab":{{"a":0,"b":1,"ab":20}},"merges":["a b"]}}}}"#
        ),
    )
    .unwrap();
    fs::write(dir.join("t"), "ab".repeat(50)).unwrap();
    let keys = format!("{TEXT}tokenizer = \"tokenizer.json\"");
    let loaded = load(&dir, &keys).unwrap();
    assert_eq!((loaded.card.vocabulary(), loaded.train.len()), (Some(21), 24));
    let tokens = loaded.train.gather(&(0..24).collect::<Vec<_>>()).unwrap();
    assert_eq!(tokens.inputs.as_u32().unwrap(), [20; 48]);
    fs::write(dir.join("t"), "ababZab").unwrap();
    fails(&dir, &keys, &["t: the tokenizer has no token for 'Z'"]);
}
