//! `lrvd prune`

use std::path::PathBuf;

use clap::Args;
use lrvd_bench::adapter::{
    Adapter, OpenOptions, PairedMeasure, Pruned, PrunedModule, SavedClassifier,
};
use lrvd_bench::data::ReadOptions;
use lrvd_bench::decimals;
use lrvd_bench::export::{PeftExport, export_peft};
use lrvd_burn::files::is_there;
use lrvd_burn::peft::ExportLayout;
use lrvd_burn::train::{Choice, ChoicePoint, DrawPolicy};
use serde_json::{Value, json};

use super::abstain::check_unseen;
use super::eval::OwnRows;
use super::{Outcome, table};
use crate::args::{self, DeviceArgument, InputColumns, heading};
use crate::exit::ExitStatus;
use crate::printer::Printer;
use crate::rows::Row;

#[derive(Debug, Args)]
pub(crate) struct PruneArguments {
    /// Output of `lrvd train`, one of its checkpoints, or the folder of any LoRA or AdaLoRA of PEFT that classifies.
    #[arg(value_name = "ADAPTER")]
    pub(crate) dir: PathBuf,
    /// Labelled rows, 100 or more, that neither trained nor chose the model: `.tsv`, `.csv`, `.jsonl`, `.json` or `.parquet`.
    #[arg(long, value_name = "FILE", help_heading = heading::DATA)]
    pub(crate) data: PathBuf,
    #[command(flatten)]
    pub(crate) columns: InputColumns,
    /// Column or key of the label [default: as in training].
    #[arg(long, value_name = "NAME", help_heading = heading::DATA)]
    pub(crate) label_column: Option<String>,
    #[command(flatten)]
    pub(crate) reading: ReadOptions,
    /// Leave out rows that trained or chose the model or fitted its temperature, which are an error otherwise.
    #[arg(long, help_heading = heading::DATA)]
    pub(crate) skip_seen: bool,
    /// The most that the mean loss of the rows may rise: nats of classes, a share of the labels' variance of numbers.
    ///
    /// Ever smaller adapters are tested at 5 % in a fixed order, and the last one that passes is kept: that the true rise is above the
    /// margin has a probability of at most 5 %. A larger margin cuts more.
    #[arg(long, value_name = "LOSS", default_value = "0.01", value_parser = args::positive, allow_negative_numbers = true, help_heading = heading::METHOD)]
    pub(crate) margin: f64,
    /// Ranks that every module keeps.
    #[arg(long, value_name = "R", default_value = "0", help_heading = heading::METHOD)]
    pub(crate) min_rank: usize,
    /// Folder to write, in the layout of PEFT; it must not exist.
    #[arg(long, value_name = "DIR", help_heading = heading::OUTPUT)]
    pub(crate) out: PathBuf,
    #[command(flatten, next_help_heading = heading::MODEL)]
    pub(crate) base: OpenOptions,
    /// Longest input in tokens; the rest is cut [default: the training's].
    #[arg(long, value_name = "N", value_parser = args::count(), allow_negative_numbers = true, help_heading = heading::MODEL)]
    pub(crate) max_length: Option<usize>,
    #[command(flatten)]
    pub(crate) device: DeviceArgument,
}

/// Searches, writes the folder and prints the search.
pub(super) fn run(arguments: PruneArguments, printer: Printer) -> Outcome {
    let PruneArguments { dir, data, margin, min_rank, out, .. } = &arguments;
    if is_there(out)? {
        return Err(lrvd_burn::Error::file(out.clone(), "already exists").into());
    }
    let device = arguments.device.open(printer)?;
    let options = OpenOptions { max_length: arguments.max_length, ..arguments.base.clone() };
    let source = Adapter::open(dir, &options, &device)?;
    let has_posterior = source.files.posterior.is_some();
    let adapter = source.plain()?;
    let classifier = SavedClassifier::on(&adapter, DrawPolicy::default(), None, &device)?;
    printer.notes(&classifier.warnings);
    let own = OwnRows {
        columns: &arguments.columns,
        label: arguments.label_column.as_ref(),
        reading: &arguments.reading,
        strict: options.strict,
    };
    let mut rows = own.read(&classifier, data, printer)?;
    check_unseen(&classifier, &mut rows, arguments.skip_seen, printer)?;
    let tried = |total_rank: usize, of: usize| {
        printer.note(&format!("trying {total_rank} of {of} ranks on held-out rows"));
    };
    let pruned = adapter.prune(classifier, &rows, (*margin, *min_rank), tried)?;
    let command =
        format!("lrvd prune ADAPTER --data ROWS --margin {margin} --min-rank {min_rank} --out OUT");
    let PeftExport { warnings, .. } =
        export_peft(&pruned.adapter, ExportLayout::Ragged, None, &command, out)?;
    printer.notes(&warnings);
    if has_posterior {
        printer.note("without the posterior: the ranks are directions of its mean");
    }
    let Pruned { choice, modules, measures, .. } = &pruned;
    let body = json!({
        "adapter": dir.display().to_string(),
        "data": data.display().to_string(),
        "out": out.display().to_string(),
        "search": choice,
        "modules": modules,
        "measures": measures,
    });
    let rows = |_: &Value| Row::each(&pruned.modules);
    printer.report_rows("prune", &body, rows, |_| text(&pruned))?;
    printer.note(&format!("written: {}", out.display()));
    Ok(ExitStatus::Done)
}

/// The choice, every size that was tried, the ranks by module, and the measures before and after.
fn text(pruned: &Pruned) -> String {
    let Pruned { choice, modules, measures, .. } = pruned;
    let Choice { points, margin, .. } = choice;
    let number = |value: f64| decimals(value, 4);
    let size = |(place, point): (usize, &ChoicePoint)| {
        let ChoicePoint { total_rank, loss, difference, upper } = *point;
        let verdict = match place {
            0 => "all ranks",
            _ if upper <= *margin => "passes",
            _ => "fails",
        };
        let [loss, difference, upper] = [loss, difference, upper].map(number);
        vec![total_rank.to_string(), loss, difference, upper, verdict.to_owned()]
    };
    let sizes = points.iter().enumerate().map(size).collect();
    let module = |module: &PrunedModule| {
        let PrunedModule { path, before, after, scaling } = module;
        vec![path.clone(), before.to_string(), after.to_string(), number(*scaling)]
    };
    let measure = |measure: &PairedMeasure| {
        let PairedMeasure { name, before, after, difference, interval: [low, high] } = *measure;
        let [before, after, difference] = [before, after, difference].map(number);
        let interval = format!("{} to {}", number(low), number(high));
        vec![name.to_owned(), before, after, difference, interval]
    };
    [
        choice.to_string(),
        table::table(&["ranks", "loss", "rise", "bound of the rise", "test"], sizes),
        table::table(
            &["module", "rank before", "after", "alpha/r"],
            modules.iter().map(module).collect(),
        ),
        table::table(
            &["on these rows", "before", "after", "difference", "95 % interval"],
            measures.iter().map(measure).collect(),
        ),
        "the intervals are of the rows that chose the ranks: other rows give unbiased ones"
            .to_owned(),
    ]
    .join("\n\n")
}
