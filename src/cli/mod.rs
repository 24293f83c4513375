//! The command line, one file per command. Exit codes: 0, 1 for a failure, 2 for wrong usage.

mod adapters;
mod cache;
mod demo;
mod eval;
mod exit;
mod export;
mod generate;
mod interrupt;
mod plan;
mod predict;
mod profile;
mod progress;
mod resumed;
mod run;
mod shaders;
mod terminal;
mod train;
mod tune;

use std::io::Write;
use std::path::PathBuf;

use clap::builder::{PathBufValueParser, TypedValueParser};
use clap::{Args, Parser, Subcommand};
use everygpu::checkpoint::native_path;
use everygpu::config::{Override, RunConfig};
use terminal::say;

/// Trains one neural network on every GPU in this machine at once, whatever their makers, through WebGPU.
#[derive(Debug, Parser)]
#[command(name = "everygpu", version, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    cache: cache::Cache,
}

#[derive(Debug, Subcommand)]
enum Command {
    Adapters(adapters::Adapters),
    Demo(demo::Demo),
    Train(train::Train),
    Eval(eval::Eval),
    Predict(predict::Predict),
    Generate(generate::Generate),
    Export(export::Export),
    Plan(plan::Plan),
    Profile(profile::Profile),
    Tune(tune::Tune),
    Shaders(shaders::Shaders),
}

impl Command {
    fn run(self) -> anyhow::Result<()> {
        match self {
            Self::Adapters(command) => command.run(),
            Self::Demo(command) => command.run(),
            Self::Train(command) => command.run(),
            Self::Eval(command) => command.run(),
            Self::Predict(command) => command.run(),
            Self::Generate(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Plan(command) => command.run(),
            Self::Profile(command) => command.run(),
            Self::Tune(command) => command.run(),
            Self::Shaders(command) => command.run(),
        }
    }
}

/// What goes to the terminal without RUST_LOG: our own warnings, and the tokenizer's about its file. Libraries of
/// drivers note what they try (a backend that is not there, memory that a lost device still has); where it matters, our
/// messages say so.
const LOG_FILTER: &str = "everygpu=warn,tokenizers=warn";

/// Parses the arguments, runs the command and ends the process.
pub fn main() -> ! {
    quiet_drivers();
    outlive_full_files();
    let log = env_logger::Env::default().default_filter_or(LOG_FILTER);
    let lines = Box::new(terminal::Lines::new(std::io::stderr()));
    env_logger::Builder::from_env(log).target(env_logger::Target::Pipe(lines)).init();
    let Cli { command, cache } = Cli::parse();
    cache.open();
    let code = match command.run() {
        Ok(()) => 0,
        Err(error) if is_closed_pipe(&error) => 0,
        Err(error) => {
            terminal::tell(format!("error: {}", chain(&error)));
            1
        }
    };
    let _ = std::io::stdout().flush();
    exit::exit_at_once(code)
}

/// An error and its causes, each once: some say in their own message what caused them.
fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if text.is_empty() {
            text = cause;
        } else if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

/// `error` with the place in the run file of the setting or layer that it is about, where it is about one.
fn placed(error: anyhow::Error, config: &RunConfig) -> anyhow::Error {
    match error.chain().find_map(|cause| config.place_of(cause.downcast_ref()?)) {
        Some(place) => error.context(place),
        None => error,
    }
}

/// Keeps Mesa's layer that chooses a default device from looking for a display, and from complaining to the terminal
/// where there is none: adapters are chosen here.
fn quiet_drivers() {
    if cfg!(target_os = "linux") && std::env::var_os("XDG_RUNTIME_DIR").is_none() {
        // SAFETY: no other thread runs yet that could read the environment.
        unsafe { std::env::set_var("NODEVICE_SELECT", "1") };
    }
}

/// Has a write beyond the largest size that a file may have (`ulimit -f`) fail, as one on a full disk does, instead of
/// ending the program without a word.
fn outlive_full_files() {
    #[cfg(unix)]
    // SAFETY: no handler is installed, the signal is only ignored.
    unsafe {
        libc::signal(libc::SIGXFSZ, libc::SIG_IGN);
    }
}

/// Whether the reader of our output has gone away (`everygpu plan … | head`), which is no failure.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        let io = match cause.downcast_ref::<csv::Error>().map(csv::Error::kind) {
            Some(csv::ErrorKind::Io(io)) => Some(io),
            _ => cause.downcast_ref::<std::io::Error>(),
        };
        io.is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// How every path among the arguments is read.
fn path() -> impl TypedValueParser<Value = PathBuf> {
    PathBufValueParser::new().map(native_path)
}

/// How a time for measurements is read.
fn seconds(text: &str) -> Result<f64, String> {
    let value = text.parse().ok().filter(|v: &f64| (0.001..=600.0).contains(v));
    value.ok_or_else(|| "expected a number from 0.001 to 600".to_owned())
}

/// Settings of a run that are given on the command line.
#[derive(Debug, Default, Args)]
struct Settings {
    /// Use this value instead of the run file's, for example `--set train.epochs=3`; may be repeated
    #[arg(long = "set", value_name = "KEY=VALUE")]
    set: Vec<String>,
    #[command(flatten)]
    devices: Devices,
}

/// On what a command runs.
#[derive(Debug, Default, Args)]
struct Devices {
    /// Adapters to use: `auto` (every GPU; software adapters only where there is none), `all`, or a comma-separated
    /// list of indices, kinds (discrete, integrated, virtual, software) and parts of names. The first one applies the
    /// updates to begin with
    #[arg(long, value_name = "LIST")]
    adapters: Option<String>,
    /// Devices to open on each adapter
    #[arg(long, value_name = "N")]
    replicas: Option<usize>,
    /// Most bytes that a device may allocate, for example 2GiB
    #[arg(long, value_name = "SIZE")]
    memory_limit: Option<String>,
}

impl Settings {
    /// What they change in a run file, in the order in which it takes effect.
    fn overrides(&self) -> everygpu::error::Result<Vec<Override>> {
        let mut overrides = self.set.iter().map(|s| Override::parse(s)).collect::<Result<Vec<_>, _>>()?;
        overrides.extend(self.devices.overrides());
        Ok(overrides)
    }
}

impl Devices {
    fn overrides(&self) -> Vec<Override> {
        let Self { adapters, replicas, memory_limit } = self;
        let adapters = adapters.iter().map(|v| Override::flag("--adapters", "devices.adapters", v));
        let replicas = replicas.iter().map(|v| Override::flag("--replicas", "devices.replicas", v));
        let limit = memory_limit.iter().map(|v| Override::flag("--memory-limit", "devices.memory_limit", v));
        adapters.chain(replicas).chain(limit).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_arguments_are_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_argument_and_command_has_a_help_text() {
        for command in Cli::command().get_subcommands() {
            assert!(command.get_about().is_some(), "{}", command.get_name());
            for argument in command.get_arguments() {
                assert!(argument.get_help().is_some(), "{} {}", command.get_name(), argument.get_id());
            }
        }
    }

    #[test]
    fn libraries_of_drivers_are_not_heard_unless_asked_for() {
        use log::{Level, Log, Metadata};
        let logger = env_logger::Builder::new().parse_filters(LOG_FILTER).build();
        let is_heard = |target, level| logger.enabled(&Metadata::builder().target(target).level(level).build());
        assert!(is_heard("everygpu::fleet", Level::Warn) && !is_heard("everygpu::fleet", Level::Info));
        let libraries = [
            "wgpu_hal::auxil::dxgi::result",
            "wgpu_hal::vulkan::instance",
            "wgpu_core::device",
            "naga::back",
            "gpu_allocator::allocator",
            "gpu_allocator::d3d12",
        ];
        for library in libraries {
            assert!(!is_heard(library, Level::Error), "{library}");
        }
    }

    #[test]
    fn the_chain_of_an_error_repeats_nothing() {
        let io = || everygpu::error::Error::io("a.toml")(std::io::Error::other("gone"));
        assert_eq!(chain(&anyhow::Error::from(io())), "a.toml: gone");
        assert_eq!(chain(&anyhow::Error::from(io()).context("while reading")), "while reading: a.toml: gone");
    }

    #[test]
    fn settings_become_overrides_that_name_their_flags() {
        let cli = Cli::parse_from(["everygpu", "train", "a.toml", "--set", "train.epochs=3", "--adapters", "0,2"]);
        let Command::Train(train) = cli.command else { panic!("the train command") };
        let overrides = train.settings.overrides().unwrap();
        assert_eq!(
            overrides,
            [Override::parse("train.epochs=3").unwrap(), Override::flag("--adapters", "devices.adapters", "0,2")]
        );
    }
}
