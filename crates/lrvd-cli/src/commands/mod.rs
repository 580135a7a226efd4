//! The command line: a file for each command, its options first.

mod abstain;
mod answers;
mod bench;
mod compare;
mod config;
mod data;
mod decide;
mod eval;
mod export;
mod generate;
mod help;
mod inspect;
mod list;
mod ood;
mod predict;
mod prune;
#[cfg(feature = "serve")]
mod serve;
mod table;
mod train;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context as _;
use clap::error::ErrorKind;
use clap::{CommandFactory, Parser, Subcommand};
use clap_complete::{Shell, generate};

use crate::args::GlobalArguments;
use crate::exit::ExitStatus;
use crate::printer::{Content, Printer};

/// Fine-tune models with low-rank adapters, optionally with learnt ranks and uncertainty.
#[derive(Debug, Parser)]
#[command(name = "lrvd", version, about, after_long_help = help::text(include_str!("help/lrvd.txt")), max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: GlobalArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Fine-tune a classifier, or a language model, on your own data.
    #[command(after_long_help = help::text(include_str!("help/train.txt")))]
    Train(Box<train::TrainArguments>),
    /// Evaluate a saved classifier on labelled examples, or a language model on texts.
    #[command(after_long_help = help::text(include_str!("help/eval.txt")))]
    Eval(Box<eval::EvalCommand>),
    /// Compare trained models on the same rows: differences, ranks, sizes, time.
    #[command(after_long_help = help::text(include_str!("help/compare.txt")))]
    Compare(Box<compare::CompareArguments>),
    /// Classify texts, with calibrated probabilities and entropy.
    #[command(after_long_help = help::text(include_str!("help/predict.txt")))]
    Predict(predict::PredictArguments),
    /// Answer typed questions about one state, with calibrated probabilities and confidence.
    #[command(after_long_help = help::text(include_str!("help/decide.txt")))]
    Decide(Box<decide::DecideArguments>),
    /// Generate text with a language model, with the uncertainty of every token.
    #[command(after_long_help = help::text(include_str!("help/generate.txt")))]
    Generate(Box<generate::GenerateArguments>),
    /// Serve a model over HTTP, with a page to try it.
    #[cfg(feature = "serve")]
    #[command(after_long_help = help::text(include_str!("help/serve.txt")))]
    Serve(Box<serve::ServeArguments>),
    /// Serve a model over HTTP: not in this build.
    #[cfg(not(feature = "serve"))]
    #[command(disable_help_flag = true, after_long_help = help::text(include_str!("help/serve.txt")))]
    Serve {
        #[arg(hide = true, trailing_var_arg = true, allow_hyphen_values = true)]
        all: Vec<OsString>,
    },
    /// Check your data before training.
    #[command(subcommand)]
    Data(data::DataCommand),
    /// Let a classifier withhold uncertain answers.
    #[command(subcommand)]
    Abstain(abstain::AbstainCommand),
    /// Tell texts unlike those of training.
    #[command(subcommand)]
    Ood(ood::OodCommand),
    /// Write and check settings files.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Show ranks, relevance and sizes of an adapter or a checkpoint.
    #[command(after_long_help = help::text(include_str!("help/inspect.txt")))]
    Inspect(inspect::InspectArguments),
    /// Cut an adapter to the ranks that held-out rows need.
    #[command(after_long_help = help::text(include_str!("help/prune.txt")))]
    Prune(Box<prune::PruneArguments>),
    /// Write an adapter for other programs.
    #[command(after_long_help = help::text(include_str!("help/export.txt")))]
    Export(export::ExportArguments),
    /// List the fine-tuning methods.
    #[command(after_help = help::text(include_str!("help/methods.txt")))]
    Methods,
    /// List the devices of this build and machine.
    #[command(after_help = help::text(include_str!("help/devices.txt")))]
    Devices,
    /// Reproduce a benchmark: train, evaluate and report several methods.
    #[command(subcommand)]
    Bench(bench::BenchCommand),
    /// Print a completion script for a shell.
    Completions {
        /// Shell.
        #[arg(value_enum)]
        shell: Shell,
    },
    /// Write the manual pages.
    #[command(hide = true)]
    Man {
        /// Folder that gets a page for each command, `lrvd.1`, `lrvd-train.1` and so on.
        #[arg(value_name = "DIR")]
        folder: PathBuf,
    },
}

impl Command {
    /// Content of its standard output, by which a format is rejected before the command works.
    fn content(&self) -> Content {
        let rows = |has_rows: bool| if has_rows { Content::Rows } else { Content::Document };
        match self {
            Self::Completions { .. }
            | Self::Man { .. }
            | Self::Data(data::DataCommand::Formats)
            | Self::Config(config::ConfigCommand::Init { .. }) => Content::Text,
            Self::Train(_) | Self::Serve { .. } | Self::Export(_) => Content::Document,
            Self::Bench(command) => rows(matches!(command, bench::BenchCommand::Status { .. })),
            Self::Config(command) => rows(matches!(command, config::ConfigCommand::Check { .. })),
            _ => Content::Rows,
        }
    }
}

/// The arguments of the process. One that must be text and is not is named.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    let given: Vec<OsString> = std::env::args_os().collect();
    Arguments::try_parse_from(&given).map_err(|error| {
        let named = (error.kind() == ErrorKind::InvalidUtf8).then(|| not_text(&given)).flatten();
        named.unwrap_or(error)
    })
}

/// The error of the first argument that must be UTF-8 and is not. Paths need not be: each argument is tried with all others
/// made UTF-8.
fn not_text(given: &[OsString]) -> Option<clap::Error> {
    let is_wrong = |&place: &usize| {
        let text = |(i, value): (usize, &OsString)| {
            if i == place { value.clone() } else { value.to_string_lossy().into_owned().into() }
        };
        let tried = Arguments::try_parse_from(given.iter().enumerate().map(text));
        tried.is_err_and(|error| error.kind() == ErrorKind::InvalidUtf8)
    };
    let place = (1..given.len()).filter(|&i| given[i].to_str().is_none()).find(is_wrong)?;
    let value = given[place].to_string_lossy();
    let (before, value) = match value.split_once('=') {
        Some((option, value)) if option.starts_with("--") => (option.into(), value),
        _ => (given[place - 1].to_string_lossy(), &*value),
    };
    let message = format!("`{value}` behind `{before}` is not UTF-8, which is expected here");
    Some(Arguments::command().error(ErrorKind::InvalidUtf8, message))
}

/// Name of standard input in errors.
const STDIN: &str = "standard input";

pub(crate) type Outcome = lrvd_bench::Result<ExitStatus>;

pub(crate) fn run(arguments: Arguments, printer: Printer) -> Outcome {
    let global = arguments.global;
    printer.format().check(arguments.command.content())?;
    match arguments.command {
        Command::Train(arguments) => train::run(*arguments, global, printer),
        Command::Eval(arguments) => eval::run(*arguments, printer),
        Command::Compare(arguments) => compare::run(*arguments, printer),
        Command::Predict(arguments) => predict::run(arguments, printer),
        Command::Decide(arguments) => decide::run(*arguments, printer),
        Command::Generate(arguments) => generate::run(*arguments, printer),
        #[cfg(feature = "serve")]
        Command::Serve(arguments) => serve::run(*arguments, printer),
        #[cfg(not(feature = "serve"))]
        Command::Serve { .. } => Err(lrvd_bench::left_out("serve")),
        Command::Abstain(command) => abstain::run(command, printer),
        Command::Ood(command) => ood::run(command, printer),
        Command::Config(command) => config::run(command, printer),
        Command::Data(command) => data::run(command, printer),
        Command::Inspect(arguments) => inspect::run(arguments, printer),
        Command::Prune(arguments) => prune::run(*arguments, printer),
        Command::Export(arguments) => export::run(arguments, printer),
        Command::Methods => list::methods(printer),
        Command::Devices => list::devices(printer),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            generate(shell, &mut Arguments::command(), "lrvd", &mut script);
            printer.data(String::from_utf8(script)?.trim_end())?;
            Ok(ExitStatus::Done)
        }
        Command::Man { folder } => {
            std::fs::create_dir_all(&folder)
                .and_then(|()| clap_mangen::generate_to(Arguments::command(), &folder))
                .with_context(|| format!("cannot write manual pages to `{}`", folder.display()))?;
            Ok(ExitStatus::Done)
        }
        Command::Bench(command) => bench::run(command, global, printer),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn a_value_that_is_not_text_is_named_and_a_path_need_not_be_text() {
        use std::os::unix::ffi::OsStringExt as _;

        let named = |words: &str| {
            let odd = |byte| if byte == b'?' { 0xff } else { byte };
            let word = |word: &str| OsString::from_vec(word.bytes().map(odd).collect());
            not_text(&words.split(' ').map(word).collect::<Vec<_>>())
        };
        for (words, expected) in [
            ("lrvd predict run? --model m? text", "`m\u{fffd}` behind `--model` is not UTF-8"),
            ("lrvd predict run? --model=m? text", "`m\u{fffd}` behind `--model` is not UTF-8"),
            ("lrvd predict run? text te?t", "`te\u{fffd}t` behind `text` is not UTF-8"),
        ] {
            let found = named(words).unwrap().to_string();
            assert!(found.contains(expected), "{found}");
        }
        assert!(named("lrvd predict run? --input in?").is_none());
    }

    #[test]
    fn every_command_has_help_with_examples() {
        let mut root = Arguments::command();
        root.build();
        root.clone().debug_assert();
        let mut open: Vec<clap::Command> = root.get_subcommands().cloned().collect();
        let mut count = 0;
        while let Some(mut command) = open.pop() {
            let is_help = command.get_name() == "help";
            open.extend(command.get_subcommands().filter(|_| !is_help).cloned());
            if command.has_subcommands() || is_help {
                continue;
            }
            count += 1;
            let path = command.get_bin_name().unwrap_or_default().to_owned();
            let help = command.render_long_help().to_string();
            assert!(help.contains(&format!("Usage: {path}")), "{path}: {help}");
            let taught = help.contains("Examples:") && help.matches(&path).count() >= 3;
            assert!(
                taught || ["lrvd completions", "lrvd man"].contains(&path.as_str()),
                "{path}: {help}"
            );
        }
        assert!(count >= 15, "{count}");
    }

    /// At 100 columns the short help of a command is a screen of 50 lines, and names only options that the whole help explains.
    #[test]
    fn the_short_help_is_a_screen_and_the_whole_help_has_all() {
        let mut root = Arguments::command().term_width(100);
        root.build();
        let mut open = vec![root];
        while let Some(command) = open.pop() {
            let is_help = command.get_name() == "help";
            open.extend(command.get_subcommands().filter(|_| !is_help).cloned());
            let path = command.get_bin_name().unwrap_or_default().to_owned();
            let short = command.clone().term_width(100).render_help().to_string();
            let lines = short.trim_end().lines().count();
            assert!(lines <= 50, "{path}: {lines} lines\n{short}");
            let whole = command.clone().term_width(100).render_long_help().to_string();
            for argument in command.get_arguments().filter_map(clap::Arg::get_long) {
                let is_there = whole.contains(&format!("--{argument}"));
                assert!(is_there || command.is_disable_help_flag_set(), "{path}: {argument}");
            }
        }
    }

    /// Commands in the code of a Markdown text, split as a shell does, up to a redirection or `…`: lines of blocks, and spans.
    fn commands(text: &str) -> Vec<Vec<String>> {
        let mut found = Vec::new();
        let mut is_block = false;
        for line in text.replace("\\\n", " ").lines() {
            if line.trim_start().starts_with("```") {
                is_block = !is_block;
                continue;
            }
            let code: Vec<String> = if is_block {
                vec![line.trim_start_matches("$ ").to_owned()]
            } else {
                line.split('`').skip(1).step_by(2).map(|span| span.replace("\\|", "|")).collect()
            };
            for words in code.iter().filter_map(|code| shlex::split(code)) {
                let words = words.into_iter().skip_while(|word| word.contains('='));
                let ends = ["<", ">", "|", "&&", "&", "...", "…"];
                let words: Vec<String> = words
                    .take_while(|word| !ends.contains(&&**word) && !word.starts_with("2>"))
                    .collect();
                if words.first().is_some_and(|word| word == "lrvd") {
                    found.push(words);
                }
            }
        }
        found
    }

    /// A mention may leave out what a command requires, or name a value.
    #[test]
    fn the_commands_of_the_guides_have_options_that_there_are() {
        let root = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut files = vec![root.join("README.md")];
        for folder in ["docs", "docs/guides", "docs/tutorials"] {
            let pages = std::fs::read_dir(root.join(folder)).unwrap();
            files.extend(pages.map(|file| file.unwrap().path()));
        }
        files.retain(|file| file.extension().is_some_and(|ending| ending == "md"));
        let mut count = 0;
        for file in files {
            for words in commands(&std::fs::read_to_string(&file).unwrap()) {
                count += 1;
                let Err(error) = Arguments::try_parse_from(&words) else { continue };
                let is_part = matches!(
                    error.kind(),
                    ErrorKind::MissingRequiredArgument
                        | ErrorKind::MissingSubcommand
                        | ErrorKind::DisplayHelp
                        | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
                );
                // An option that is named without its value.
                let is_open = error.kind() == ErrorKind::InvalidValue
                    && words.last().is_some_and(|word| word.starts_with("--"));
                // `K` stands for a number, and `COMMAND` for a command.
                let is_named = |word: &String| word.bytes().all(|byte| byte.is_ascii_uppercase());
                let is_value = matches!(
                    error.kind(),
                    ErrorKind::ValueValidation | ErrorKind::InvalidSubcommand
                );
                let is_placeholder = is_value && words.iter().any(is_named);
                assert!(
                    is_part || is_open || is_placeholder,
                    "{}: {words:?}: {error}",
                    file.display()
                );
            }
        }
        assert!(count > 200, "{count}");
    }

    #[test]
    fn the_options_of_training_have_headings() {
        let mut root = Arguments::command();
        root.build();
        let train = root.find_subcommand_mut("train").unwrap();
        let short = train.render_help().to_string();
        let places: Vec<usize> = ["Data:", "Model:", "Training:", "Method:", "Output:"]
            .map(|heading| short.find(&format!("\n{heading}\n")).unwrap_or(usize::MAX))
            .into();
        assert!(places.is_sorted() && places[4] < short.len(), "{places:?}: {short}");
        let bare = |argument: &&clap::Arg| argument.get_help_heading().is_none();
        let bare: Vec<_> = train.get_arguments().filter(bare).map(clap::Arg::get_id).collect();
        assert_eq!(bare, ["threads", "help"]);
    }
}
