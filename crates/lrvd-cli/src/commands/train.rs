//! `lrvd train`

use std::path::{Path, PathBuf};

use anyhow::bail;
use clap::Args;
use lrvd_bench::adapter::{
    Abstention, Adapter, AdapterReport, Certificate, OUTSIDE, OodReport, OpenOptions, RiskTarget,
    inspect_adapter, named_at,
};
use lrvd_bench::answers::AnswerSpace;
use lrvd_bench::data::Data;
use lrvd_bench::data_check::LengthStats;
use lrvd_bench::method::MethodName;
use lrvd_bench::record::CheckpointRecord;
use lrvd_bench::run::{CHECKPOINT_DIR, last_folder, next_folder};
use lrvd_bench::settings::{CheckpointChoice, Layers, Training};
use lrvd_bench::{
    PlannedSetting, Result, TrainOptions, TrainOutcome, TrainPlan, UnknownName, percent,
    plan_training, train,
};
use lrvd_burn::device;
use lrvd_burn::train::latest_checkpoint;
use serde_json::json;

use super::config::{overrides, plain};
use super::data::{ExampleArguments, read, set_wording};
use super::{Outcome, table};
use crate::args::{self, DeviceArgument, GlobalArguments, SettingsArguments, heading};
use crate::exit::{ExitStatus, run_flag};
use crate::printer::{Format, Printer};
use crate::progress::{self, Journal};

/// Classes that a dry run names; of more it prints the number.
const FEW_CLASSES: usize = 20;

#[derive(Debug, Args)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(crate) struct TrainArguments {
    #[command(flatten)]
    pub(crate) examples: ExampleArguments,
    /// Pretrained model: a folder, a `.gguf` file or `owner/name`.
    ///
    /// `owner/name` is a repository on the Hugging Face Hub. DeBERTa-v2 or -v3, BERT, RoBERTa, XLM-RoBERTa, DistilBERT, MPNet, ModernBERT, Llama, Mistral, Qwen2, Qwen2.5 or Qwen3 in Hugging Face's layout; only a
    /// language model may be a `.gguf` file.
    #[arg(long, value_name = "DIR|GGUF|HUB-ID", help_heading = heading::MODEL)]
    pub(crate) model: String,
    /// Revision of the repository: a branch, a tag or a commit [default: main].
    #[arg(long, value_name = "REVISION", help_heading = heading::MODEL, hide_short_help = true)]
    pub(crate) revision: Option<String>,
    /// Longest input in tokens [default: from the settings, 128].
    ///
    /// The default is 1024 for texts of a language model, and 512 for typed questions, or fewer if the model has fewer positions.
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::MODEL)]
    pub(crate) max_length: Option<usize>,
    /// Keep the classifier of the base, whose labels must have the names of the data's classes, instead of a new one.
    #[arg(long, help_heading = heading::MODEL, hide_short_help = true)]
    pub(crate) keep_head: bool,
    #[command(flatten)]
    pub(crate) device: DeviceArgument,
    #[command(flatten)]
    pub(crate) settings: SettingsArguments,
    /// Passes over the training rows, may be a fraction [default: 3, within 500 to 10000 steps].
    ///
    /// Rows that are held out are not counted. By default a run takes 3 epochs, though not fewer than 500 steps (100 of a language
    /// model on texts), which few rows need until a new head has learnt, and not more than 10000. A number that is passed is taken
    /// as it is. The first line of a run, and `--dry-run`, say how many steps and epochs there are.
    #[arg(long, value_name = "N", value_parser = args::positive, conflicts_with = "steps", allow_negative_numbers = true, help_heading = heading::TRAINING)]
    pub(crate) epochs: Option<f64>,
    /// Optimizer steps, instead of epochs.
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::TRAINING)]
    pub(crate) steps: Option<usize>,
    /// Peak learning rate of the adapters; the head's keeps its ratio to it.
    ///
    /// The head learns at ten times the rate of the adapters by default, also where this option or a file changes that
    /// rate, unless `head_learning_rate` is set.
    #[arg(long, value_name = "RATE", value_parser = args::positive, allow_negative_numbers = true, help_heading = heading::TRAINING)]
    pub(crate) learning_rate: Option<f64>,
    /// Course of the learning rates after the warm-up [default: linear].
    ///
    /// linear falls in a line to 0, cosine along half a cosine to 0, constant stays.
    #[arg(long, value_name = "NAME", value_parser = ["linear", "cosine", "constant"], help_heading = heading::TRAINING, hide_short_help = true)]
    pub(crate) schedule: Option<String>,
    /// Weigh the rows of rare classes up: `balanced`.
    ///
    /// In the training loss a class of `c` of `n` rows has the weight `n / (k c)`, with `k` classes, as scikit-learn's `balanced`; the loss of a
    /// batch is divided by its sum of weights. Rare classes are found more often, and given their probability is higher than they are
    /// frequent. The temperature, the choice of ranks and all metrics have no weights. For rows of one class each.
    #[arg(long, value_name = "NAME", value_parser = ["balanced"], help_heading = heading::TRAINING, hide_short_help = true)]
    pub(crate) class_weight: Option<String>,
    /// Examples per step.
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::TRAINING)]
    pub(crate) batch_size: Option<usize>,
    /// Stop after N evaluations without a smaller validation NLL.
    ///
    /// The model with the smallest negative log-likelihood on the validation rows is kept.
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::TRAINING)]
    pub(crate) patience: Option<usize>,
    /// Seed of all random numbers.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = args::seed(), allow_negative_numbers = true, help_heading = heading::TRAINING)]
    pub(crate) seed: u64,
    /// Method, of `lrvd methods` [default: lora+ts].
    ///
    /// lora, adalora, bayeslora, or another that results in one adapter: map, mcd, bayeslora-fixed, lrvd-element, …; the suffix
    /// `+ts` fits a temperature to held-out rows. linear fits a regression on the frozen encoder in place of an adapter, in
    /// seconds: for 8 to 50 rows a class. The default is lora for texts of a language model and for numbers.
    #[arg(long, value_name = "NAME", help_heading = heading::METHOD)]
    pub(crate) method: Option<String>,
    /// Do not fit a regression on the frozen encoder beside the adapter.
    ///
    /// A regression (`--method linear`) is the simplest classifier on the same encoder. Where it takes less than a tenth of the
    /// run, it is fitted after it, and one line compares both on the validation rows.
    #[arg(long, help_heading = heading::METHOD, hide_short_help = true)]
    pub(crate) no_baseline: bool,
    /// Largest error rate of the answers that `--abstain` gives, or none [default: 0.05].
    ///
    /// The end of the run fits a threshold on the entropy above which `lrvd predict --abstain` and `lrvd serve --abstain` give no answer,
    /// with 95 % confidence that at most this share of the given answers is wrong, and a detector of texts unlike those of
    /// training. They need rows that neither trained nor chose the model: the validation rows, or where these chose it the rows
    /// that fitted the temperature. 0.05 needs at least 59 of them, 0.01 at least 299. `none` fits neither. For classes.
    #[arg(long, value_name = "RISK", value_parser = risk, allow_negative_numbers = true, help_heading = heading::ANSWERS, hide_short_help = true)]
    pub(crate) risk: Option<Risk>,
    /// Rank, or the initial rank [default: from the settings, 8].
    ///
    /// BayesLoRA and AdaLoRA start from the initial rank.
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::METHOD)]
    pub(crate) rank: Option<usize>,
    /// Average rank at the end, for adalora [default: half the initial rank].
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::METHOD)]
    pub(crate) target_rank: Option<usize>,
    /// Output folder, new or empty [default: runs/train, or runs/train-2, …].
    ///
    /// The default is the first number behind the last folder that exists, or with `--resume` that folder.
    #[arg(long, value_name = "DIR", help_heading = heading::OUTPUT)]
    pub(crate) out: Option<PathBuf>,
    /// Continue an interrupted run in its output folder.
    #[arg(long, help_heading = heading::OUTPUT)]
    pub(crate) resume: bool,
    /// Print what would be trained, and every setting with its origin; train and write nothing.
    #[arg(long, help_heading = heading::OUTPUT, conflicts_with = "resume")]
    pub(crate) dry_run: bool,
}

/// Largest error rate of the answers that are given; `None` fits no threshold.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Risk(Option<f64>);

fn risk(text: &str) -> Result<Risk, String> {
    if text == "none" {
        return Ok(Risk(None));
    }
    let found = args::share(text).map_err(|error| format!("{error}, or none"))?;
    Ok(Risk(Some(found)))
}

pub(super) fn run(arguments: TrainArguments, global: GlobalArguments, printer: Printer) -> Outcome {
    let data = read(&arguments.examples, printer)?;
    if arguments.dry_run {
        let device = arguments.device.name(printer);
        let plan = plan_training(&options(arguments, (device, PathBuf::new()), &data)?, data)?;
        printer.notes(&plan.notes);
        printer.report("train", &plan, planned)?;
        return Ok(ExitStatus::Done);
    }
    let stop = run_flag(printer)?;
    let out = output_folder(&arguments, printer)?;
    let device = arguments.device.name(printer);
    let options = options(arguments, (device, out), &data)?;
    let shown = progress::sink(printer, global.progress_style(), &stop);
    let out = options.out.clone();
    let mut sink = Journal::new(shown, printer, move |_| out.clone());
    let TrainOutcome { record, adapter, checkpoint } =
        train(&options, data, &stop, &mut |event| sink.event(event))?;
    drop(sink); // gives the screen back
    let Some(record) = record else {
        if printer.format() == Format::Json {
            printer.document("train", json!({ "complete": false }))?;
        }
        let kept = latest_checkpoint(&options.out.join(CHECKPOINT_DIR))?;
        let when = if kept.is_some() { "after a checkpoint" } else { "before the first step" };
        printer.note(&format!("interrupted {when}; run the same command with --resume"));
        return Ok(ExitStatus::Requeue);
    };
    let chosen = match (checkpoint, &record.checkpoints.best) {
        (CheckpointChoice::Best, Some(best)) => Some(best),
        _ => record.checkpoints.last.as_ref(),
    };
    // Those of the model that is saved: the record counts the last one.
    let saved = Adapter::open(&adapter, &OpenOptions::default(), &device::open(device::CPU)?)?;
    let report = inspect_adapter(&saved)?;
    let detector = OodReport::find(&adapter)?;
    match printer.format() {
        Format::Json => {
            let body = json!({
                "complete": true,
                "adapter": adapter,
                "record": record,
                "abstentions": report.abstentions,
                "detector": detector,
            });
            printer.document("train", body)?;
        }
        _ => {
            if let Some(chosen) = chosen {
                printer.data(&table::metrics(&chosen.metrics, &chosen.reliability))?;
                let start = record.rank_events.first().map(|event| event.total_rank);
                printer.data(&sizes(chosen, start, &report))?;
                if let Some(text) = withheld(&report, detector.as_ref()) {
                    printer.data(&format!("\n{text}"))?;
                }
                if let Some(classes) = &record.classes {
                    printer.data(&format!("\n{}", table::by_class(classes)))?;
                }
            }
        }
    }
    // Where the system tells it.
    if let Some(bytes) = record.peak_memory_bytes {
        printer.note(&format!("memory at the peak: {} MiB", table::count((bytes >> 20) as usize)));
    }
    printer.note(&format!("adapter: {}", adapter.display()));
    Ok(ExitStatus::Done)
}

/// Rows, lengths, steps and memory of a run that is not started, and its settings with the origin of each.
fn planned(plan: &TrainPlan) -> String {
    let mut rows = vec![
        ("model", plan.model.clone()),
        ("method", plan.method.name()),
        ("device", plan.device.clone()),
        ("seed", plan.seed.to_string()),
        ("training rows", table::count(plan.train_rows)),
        ("held-out rows", table::count(plan.held_out_rows)),
        ("validation rows", table::count(plan.validation_rows)),
    ];
    if !plan.classes.is_empty() {
        let named = plan.classes.len() <= FEW_CLASSES;
        let names = if named { format!(": {}", plan.classes.join(", ")) } else { String::new() };
        rows.push(("classes", format!("{}{names}", plan.classes.len())));
    }
    if let Some(LengthStats { least, median, most_rows, most }) = plan.tokens {
        let text = format!("{least} {median} {most_rows} {most}");
        rows.push(("tokens of a row: least, median, 95 % at most, most", text));
    }
    rows.push(("steps", format!("{} ({:.2} epochs)", table::count(plan.steps), plan.epochs)));
    rows.push(("trained values in adapters", table::count(plan.adapter_parameters)));
    rows.push(("estimated memory", format!("{:.2} GiB", plan.peak_memory)));
    let rows = rows.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect();
    let setting = |PlannedSetting { key, value, origin }: &PlannedSetting| {
        vec![key.clone(), plain(value), origin.name().to_owned()]
    };
    let settings = plan.settings.iter().map(setting).collect();
    let about = table::words(&["run", ""], rows);
    format!("{about}\n\n{}", table::words(&["setting", "value", "origin"], settings))
}

/// The thresholds of `--abstain`, by number of draws, and the rows that the detector of other texts was fitted to; `None` if nothing was.
fn withheld(saved: &AdapterReport, detector: Option<&OodReport>) -> Option<String> {
    let row = |(&draws, own): (&usize, &Abstention)| {
        let Certificate { target, delta, risk, coverage, rows } = own.certificate;
        let scale = if own.untempered { " at temperature 1" } else { "" };
        vec![
            if draws == 0 { "mean".to_owned() } else { format!("{draws} draws") },
            format!("{:.4} nats{scale}", own.above),
            format!("{:.1} % of {rows} {} rows", 100.0 * coverage, own.fitted_to.describe()),
            format!("{:.2} %", 100.0 * risk),
            format!("{} % with {} % confidence", percent(target), percent(1.0 - delta)),
        ]
    };
    let header = [
        "--abstain",
        "no answer above an entropy of",
        "answered",
        "wrong of these",
        "wrong at most",
    ];
    let rows: Vec<Vec<String>> = saved.abstentions.iter().map(row).collect();
    let thresholds = (!rows.is_empty()).then(|| table::words(&header, rows));
    let unlike = detector.map(|own| {
        format!(
            "texts unlike those of training: fitted to {} training rows, of {} other rows {} % count as unlike",
            own.reference_rows,
            own.report_rows[0],
            percent(OUTSIDE)
        )
    });
    let lines: Vec<String> = thresholds.into_iter().chain(unlike).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

/// Ranks of the saved checkpoint out of `start`, and its trained values by part.
fn sizes(chosen: &CheckpointRecord, start: Option<u64>, saved: &AdapterReport) -> String {
    let CheckpointRecord { step, total_rank, average_rank, percent_rank, .. } = chosen;
    let of = start.map_or_else(String::new, |start| format!(" of {start}"));
    // A method without steps has no rank at its start, and none at its end.
    let scale = saved.scale().map_or_else(String::new, |scale| format!(", {scale}"));
    let ranks = format!(
        "step {step}: total rank {total_rank}{of}, {average_rank:.2} per module ({percent_rank:.0} % of the start){scale}\n"
    );
    let ranks = if start.is_some() { ranks } else { String::new() };
    let parts = [
        (saved.adapter_parameters, "in adapters"),
        (saved.posterior_parameters, "in the posterior"),
        (saved.saved_parameters.values().sum(), "in pooler and head"),
    ];
    let named = parts.iter().filter(|(n, _)| *n > 0);
    let named: Vec<String> =
        named.map(|(n, part)| format!("{} {part}", table::count(*n))).collect();
    format!(
        "{ranks}trained values: {}, {} in all",
        named.join(", "),
        table::count(parts.iter().map(|(n, _)| n).sum()),
    )
}

/// Output folder of a run whose command line names none; further ones are numbered.
const OUT: &str = "runs/train";

/// The output folder, with a note where the command line does not name it.
fn output_folder(arguments: &TrainArguments, printer: Printer) -> Result<PathBuf> {
    if let Some(out) = &arguments.out {
        return Ok(out.clone());
    }
    let base = Path::new(OUT);
    let out = if arguments.resume { last_folder(base)? } else { next_folder(base)? };
    printer.note(&format!("output folder: {}", out.display()));
    Ok(out)
}

fn settings(arguments: &TrainArguments, training: Training) -> Result<Layers> {
    let mut config = overrides(&arguments.settings, Some(training))?;
    let counts = [
        ("steps", arguments.steps),
        ("patience", arguments.patience),
        ("batch_size", arguments.batch_size),
        ("initial_rank", arguments.rank),
        ("max_length", arguments.max_length),
    ];
    for (key, value) in counts {
        if let Some(value) = value {
            config.set(key, value as i64)?;
        }
    }
    let words = [("schedule", &arguments.schedule), ("class_weight", &arguments.class_weight)];
    for (key, value) in words {
        if let Some(value) = value {
            config.set(key, value.as_str())?;
        }
    }
    if arguments.keep_head {
        config.set("keep_head", true)?;
    }
    for (key, value) in [("epochs", arguments.epochs), ("learning_rate", arguments.learning_rate)] {
        if let Some(value) = value {
            config.set(key, value)?;
        }
    }
    Ok(config)
}

/// The method called `name`, which must be one of those that `suit`.
fn named(name: &str, suit: impl Fn(MethodName) -> bool) -> Result<MethodName> {
    let known = MethodName::from_name(name).filter(|method| suit(*method));
    let names = || MethodName::saved().filter(|method| suit(*method)).map(MethodName::name);
    Ok(known.ok_or_else(|| UnknownName::new("method", name, names()))?)
}

fn options(
    arguments: TrainArguments,
    (device, out): (String, PathBuf),
    data: &Data,
) -> Result<TrainOptions> {
    let training = data.training();
    let mut settings = settings(&arguments, training)?;
    set_wording(&mut settings, &arguments.examples)?;
    // Numbers and texts have no temperature.
    let is_tempered = match data {
        Data::Texts(_) => false,
        Data::Labelled(data) => data.kind.goal.answers != AnswerSpace::Score,
    };
    let method = match (&arguments.method, training) {
        (Some(name), Training::Language) => named(name, MethodName::is_for_language)?,
        (Some(name), Training::Classifier) => named(name, |method| method.can().saved)?,
        (None, _) if is_tempered => MethodName::LORA.tempered(),
        (None, _) => MethodName::LORA,
    };
    let is_of_classes = match data {
        Data::Texts(_) => false,
        Data::Labelled(data) => matches!(data.kind.goal.answers, AnswerSpace::Classes { .. }),
    };
    let target = match arguments.risk {
        Some(Risk(Some(_))) if !is_of_classes => bail!(
            "`--risk` is for rows of one class each, and these have other answers: leave it out"
        ),
        Some(Risk(risk)) => risk.map(|risk| RiskTarget { risk, ..RiskTarget::USUAL }),
        None => is_of_classes.then_some(RiskTarget::USUAL),
    };
    Ok(TrainOptions {
        model: named_at(&arguments.model, arguments.revision.as_deref())?,
        method,
        target_rank: arguments.target_rank,
        settings,
        seed: arguments.seed,
        device,
        out,
        resume: arguments.resume,
        baseline: !arguments.no_baseline,
        target,
        strict: arguments.examples.strict,
    })
}
