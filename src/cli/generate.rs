//! `everygpu generate`

use std::io::Write;
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use everygpu::data::text::Codec;
use everygpu::gpu::Adapters;
use everygpu::predict::{Generator, Sampling, on_first};
use everygpu::self_test::usable;
use everygpu::train::Flow;

use super::run::{Which, open};
use super::{Devices, path, terminal};

/// Write text with a language model, going on from a prompt
#[derive(Debug, Args)]
pub struct Generate {
    /// The run folder
    #[arg(value_name = "RUN_DIR", value_parser = path())]
    run: PathBuf,
    /// What the text starts with
    #[arg(long, value_name = "TEXT")]
    prompt: String,
    /// How many tokens to write
    #[arg(long, value_name = "N", default_value_t = 256)]
    tokens: usize,
    /// Below 1 the likely gets likelier, 0 always takes the likeliest token
    #[arg(long, value_name = "T", default_value_t = 0.8)]
    temperature: f64,
    /// Choose from this many of the likeliest tokens only
    #[arg(long, value_name = "K")]
    top_k: Option<usize>,
    /// Choose from the likeliest tokens that together have this probability only
    #[arg(long, value_name = "P", default_value_t = 1.0)]
    top_p: f64,
    /// Decides the choices: the same seed gives the same text
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Which checkpoint to take
    #[arg(long, value_enum, default_value_t = Which::Best)]
    checkpoint: Which,
    #[command(flatten)]
    devices: Devices,
}

impl Generate {
    pub fn run(self) -> anyhow::Result<()> {
        let run = open(&self.run, self.checkpoint, &self.devices.overrides())?;
        let tokenizer = run.card.tokenizer.as_ref();
        let tokenizer = tokenizer.with_context(|| {
            format!("{}: the run's model was not trained on text; see `everygpu predict`", self.run.display())
        })?;
        let codec = tokenizer.codec()?;
        let prompt = codec.encode(&self.prompt).context("--prompt")?;
        let Self { temperature, top_k, top_p, seed, .. } = self;
        let sampling = Sampling { temperature, top_k, top_p, seed };
        sampling.validate()?;
        let (adapters, _) = usable(Adapters::discover()?.select(&run.config.devices.adapters)?)?;
        let task = run.config.task(&run.card)?;
        let mut generator = on_first(&adapters, |adapter| Generator::restore(adapter, &task, &run.snapshot))?;

        let mut out = Pen { text: codec.decode(&prompt), tokens: prompt.clone(), codec: &codec, failed: None };
        out.print(&self.prompt);
        generator.generate(&prompt, self.tokens, &sampling, |token| Ok(out.write(token)))?;
        out.end()
    }
}

/// Writes text as its tokens come: only whole characters, which may take several tokens.
struct Pen<'a> {
    /// What has been written.
    text: String,
    /// All tokens so far.
    tokens: Vec<u32>,
    codec: &'a Codec,
    failed: Option<std::io::Error>,
}

impl Pen<'_> {
    fn print(&mut self, text: &str) {
        let mut out = std::io::stdout().lock();
        self.failed = write!(out, "{}", terminal::shown(text)).and_then(|()| out.flush()).err();
    }

    fn write(&mut self, token: u32) -> Flow {
        self.tokens.push(token);
        let text = self.codec.decode(&self.tokens);
        if !text.ends_with('\u{fffd}') {
            self.catch_up(text);
        }
        if self.failed.is_some() { Flow::Stop } else { Flow::Continue }
    }

    /// Writes what `text` has more than what has been written.
    fn catch_up(&mut self, text: String) {
        let new = text.get(self.text.len()..).unwrap_or_default().to_owned();
        self.print(&new);
        self.text = text;
    }

    fn end(mut self) -> anyhow::Result<()> {
        if self.failed.is_none() {
            let text = self.codec.decode(&self.tokens);
            self.catch_up(text);
            self.print("\n");
        }
        self.failed.map_or(Ok(()), |error| Err(error.into()))
    }
}
