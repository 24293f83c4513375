//! A language model from its text to what it writes.

use super::*;

/// A run over a text that repeats itself, with a model that is large enough to notice.
fn learned(text: &str, tokenizer: &str, attention: &str) -> Place {
    let place = Place::new();
    place.write("t.txt", text.repeat(120));
    let vocabulary = if tokenizer == "bytes" { 256 } else { 5 };
    place.write(
        "t.toml",
        format!(
            "[data]\nformat = \"text\"\npath = \"t.txt\"\ntokenizer = \"{tokenizer}\"\nlength = 8\nvalidation = 0.1\n\
             [model]\nlayers = [{{ kind = \"embedding\", vocabulary = {vocabulary}, width = 16 }}, \"positions\",\n\
             {{ kind = \"self_attention\", heads = 2{attention} }}, {{ kind = \"linear\", out = {vocabulary} }}]\n\
             [train]\nepochs = 40\nbatch = 8\n[optimizer]\nkind = \"adamw\"\nlr = 2e-2\n"
        ),
    );
    place
}

const CAUSAL: &str = ", causal = true";

#[test]
fn a_model_that_has_learned_a_text_goes_on_with_it() {
    for (text, tokenizer) in [("abcd ", "characters"), ("añb ", "bytes")] {
        let place = learned(text, tokenizer, CAUSAL);
        place.train(&[]).well();
        let said = place.run(&["eval", "runs/t-1"]).well().out;
        assert!(said.contains("accuracy: 100.00%"), "{said}");
        let generate = ["generate", "runs/t-1", "--prompt", text, "--tokens", "20", "--temperature", "0"];
        let written = place.run(&generate).well().out;
        // Bytes end within a character or behind it.
        let expected = text.repeat(6);
        let whole = written.trim_end_matches('\n').trim_end_matches('\u{fffd}');
        assert!(expected.starts_with(whole) && whole.len() > expected.len() - 6, "{written:?}");
        let sampled = [&generate[..6], &["--seed", "7", "--top-k", "3", "--top-p", "0.9"]].concat();
        assert_eq!(place.run(&sampled).well().out, place.run(&sampled).well().out);
    }
}

#[test]
fn what_cannot_be_written_is_said() {
    let place = learned("abcd ", "characters", CAUSAL);
    place.train(&["train.epochs=1"]).well();
    let fails = |arguments: &[&str], parts: &[&str]| {
        place.run(&[&["generate", "runs/t-1"], arguments].concat()).failed(parts);
    };
    fails(&["--prompt", "axe"], &["--prompt", "'x' did not occur in the training text"]);
    fails(&["--prompt", ""], &["prompt: expected at least one token"]);
    fails(&["--prompt", "a", "--top-p", "0"], &["top-p: expected above 0 and at most 1, got 0"]);
    place.run(&["predict", "runs/t-1", "--input", "t.txt"]).failed(&["t.txt", "`everygpu generate`"]);

    let digits = Place::with_table(TABLE);
    digits.train(&[]).well();
    digits.run(&["generate", "runs/t-1", "--prompt", "a"]).failed(&["runs/t-1", "was not trained on text"]);
}

#[test]
fn a_model_that_looks_ahead_is_refused() {
    let place = learned("abcd ", "characters", "");
    place.train(&["train.epochs=1"]).well();
    place.run(&["generate", "runs/t-1", "--prompt", "a"]).failed(&["it looks ahead", "causal = true"]);
}

#[test]
fn models_that_do_not_fit_the_text_are_refused() {
    let place = learned("abcd ", "characters", CAUSAL);
    place.write("t.toml", place.read("t.toml").replace("out = 5", "out = 6"));
    place.train(&[]).failed(&["layer 4 (linear)", "expected [8, 5] as its output, one logit a token", "got [8, 6]"]);
    place.has_no_run();
}

#[test]
fn a_cache_takes_the_place_of_no_other_file() {
    let place = learned("abcd ", "characters", CAUSAL);
    place.write("notes.txt", "dear diary");
    for name in ["notes.txt", "t.txt", "t.toml"] {
        let before = place.read(name);
        place.train(&[&format!("data.cache=\"{name}\"")]).failed(&[name, "holds no tokens"]);
        assert_eq!(place.read(name), before);
    }
    place.has_no_run();
}

#[test]
fn a_resumed_run_holds_out_what_it_held_out() {
    let place = learned("abcd ", "characters", CAUSAL);
    place.train(&["train.epochs=1"]).well();
    let resumed = place.run(&["train", "--resume", "runs/t-1", "--set", "data.validation=0.5"]);
    resumed.failed(&["runs/t-1", "Leave data.validation as it was"]);
}

#[test]
fn a_resumed_run_keeps_its_characters() {
    let place = learned("abcd ", "characters", CAUSAL);
    place.train(&["train.epochs=1"]).well();
    place.write("t.txt", "abce ".repeat(120));
    let resumed = place.run(&["train", "--resume", "runs/t-1", "--set", "train.epochs=2"]);
    resumed.failed(&["runs/t-1", "the tokenizer has changed, or the characters of the text have"]);
}
