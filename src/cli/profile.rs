//! `everygpu profile`

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::Context;
use clap::Args;
use everygpu::config::RunConfig;
use everygpu::gpu::Adapters;
use everygpu::profile::{self, Group, Part, Profiling, Rate, Timed, profile};

use super::{Settings, path, placed, seconds, terminal};

/// Measure where the time of a step goes, on the first adapter: by kernel, by layer and by dispatch, beside what the
/// adapter can do at best. Nothing is written to a run folder
#[derive(Debug, Args)]
pub struct Profile {
    /// The run file
    #[arg(value_name = "RUN.toml", value_parser = path())]
    run: PathBuf,
    /// Samples that the device runs at once; by default what it would choose for the whole batch
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    micro_batch: Option<u32>,
    #[command(flatten)]
    settings: Settings,
    /// Seconds that repetitions may take
    #[arg(long, value_name = "S", default_value_t = 3.0, value_parser = seconds)]
    seconds: f64,
    /// Lines of each table
    #[arg(long, value_name = "N", default_value_t = 12)]
    top: usize,
    /// Print all of it as JSON
    #[arg(long)]
    json: bool,
}

impl Profile {
    pub fn run(self) -> anyhow::Result<()> {
        let config = RunConfig::load(&self.run, &self.settings.overrides()?)?;
        let data = config.data.load(config.train.seed, &config.model.loss)?;
        let adapters = Adapters::discover()?.select(&config.devices.adapters)?;
        let profiling = Profiling {
            task: config.task(&data.card)?,
            options: config.train.clone(),
            data: data.train,
            adapter: adapters.into_iter().next().context("no adapter was chosen")?,
            memory_limit: config.devices.memory_limit,
            micro_batch: self.micro_batch.map(|rows| rows as usize),
            seconds: self.seconds,
        };
        let profile = profile(&profiling).map_err(|error| placed(error.into(), &config))?;
        if self.json {
            writeln!(terminal::data(), "{}", serde_json::to_string_pretty(&profile)?)?;
        } else {
            print(&profile, self.top, &mut terminal::out())?;
        }
        Ok(())
    }
}

fn print(profile: &profile::Profile, top: usize, out: &mut impl Write) -> io::Result<()> {
    let profile::Profile { adapter, driver, micro_batch, rounds, ceilings, step, .. } = profile;
    writeln!(out, "{adapter}, driver {driver}")?;
    let clock = if profile.timed_by == "device" { "the device's clock" } else { "single submissions" };
    writeln!(out, "micro-batch of {micro_batch}, medians of {rounds} rounds, dispatches timed by {clock}")?;
    writeln!(out, "at best {:.1} GFLOP/s in registers, {:.1} GB/s by copying\n", ceilings.gflops, ceilings.gbytes)?;
    writeln!(out, "a step {:>12}", milliseconds(*step))?;
    let count = |part| profile.dispatches.iter().filter(|timed| timed.part == part).count();
    for (what, seconds, note) in [
        ("gradients", profile.gradients, format!("{} dispatches", count(Part::Gradients))),
        ("update", profile.update, format!("{} dispatches", count(Part::Update))),
        ("gaps", profile.gaps, "upload, submission, read-back".to_owned()),
    ] {
        writeln!(out, "  {what:<10} {} {:>6.1}%  {note}", milliseconds(seconds), 100.0 * seconds / step)?;
    }
    table("by kernel", profile.by_kernel.iter().map(Row::from), profile, top, out)?;
    table("by layer", profile.by_layer.iter().map(Row::from), profile, top, out)?;
    let mut dispatches: Vec<(usize, &Timed)> = profile.dispatches.iter().enumerate().collect();
    dispatches.sort_by(|a, b| b.1.seconds.total_cmp(&a.1.seconds));
    let row = |(index, timed): (usize, &Timed)| Row {
        name: format!("{index} {}", timed.kernel),
        dispatches: 1,
        seconds: timed.seconds,
        rate: Rate::of(std::iter::once(timed)),
        note: if timed.layer.is_empty() { String::new() } else { format!("  # {}", timed.layer) },
    };
    table("by dispatch", dispatches.into_iter().map(row), profile, top, out)
}

/// A line of a table.
struct Row {
    name: String,
    dispatches: usize,
    seconds: f64,
    rate: Rate,
    note: String,
}

impl From<&Group> for Row {
    fn from(group: &Group) -> Self {
        let &Group { ref name, dispatches, seconds, rate, .. } = group;
        let name = if name.is_empty() { "(no layer)" } else { name };
        Self { name: name.to_owned(), dispatches, seconds, rate, note: String::new() }
    }
}

/// The first `top` rows, and what the others take together.
fn table(
    title: &str,
    rows: impl Iterator<Item = Row>,
    profile: &profile::Profile,
    top: usize,
    out: &mut impl Write,
) -> io::Result<()> {
    let share = |seconds: f64| 100.0 * seconds / (profile.gradients + profile.update);
    let of = |rate: f64, best: f64| format!("{:.0}%", 100.0 * rate / best);
    writeln!(
        out,
        "\n{title:<58} {:>4} {:>12} {:>7} {:>9} {:>7} {:>7} {:>7}",
        "runs", "time", "share", "GFLOP/s", "of best", "GB/s", "of best"
    )?;
    let mut others = (0, 0, 0.0);
    for (index, Row { name, dispatches, seconds, rate, note }) in rows.enumerate() {
        if index >= top {
            others = (others.0 + 1, others.1 + dispatches, others.2 + seconds);
            continue;
        }
        let (flops, of_flops) = match rate.gflops {
            Some(gflops) => (format!("{gflops:.1}"), of(gflops, profile.ceilings.gflops)),
            None => Default::default(),
        };
        let (bytes, of_bytes) = (rate.gbytes, of(rate.gbytes, profile.ceilings.gbytes));
        let (time, share) = (milliseconds(seconds), share(seconds));
        write!(out, "{name:<58} {dispatches:>4} {time} {share:>6.1}%")?;
        writeln!(out, " {flops:>9} {of_flops:>7} {bytes:>7.1} {of_bytes:>7}{note}")?;
    }
    let (count, dispatches, seconds) = others;
    if count > 0 {
        let (name, time, share) = (format!("{count} others"), milliseconds(seconds), share(seconds));
        writeln!(out, "{name:<58} {dispatches:>4} {time} {share:>6.1}%")?;
    }
    Ok(())
}

fn milliseconds(seconds: f64) -> String {
    format!("{:>9.3} ms", 1000.0 * seconds)
}
