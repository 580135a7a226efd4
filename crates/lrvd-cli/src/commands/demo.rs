//! `lrvd demo planted-rank`

use lrvd_bench::planted::{
    PlantedConfig, PlantedSettings, PlantedTask, Recovery, recover, save, terminal,
};
use lrvd_bench::progress::Event;
use lrvd_burn::device;
use serde_json::{Value, json};

use super::Outcome;
use super::table::table;
use crate::args::{DemoCommand, GlobalArguments, PlantedRankArguments};
use crate::exit::ExitStatus;
use crate::printer::{Format, Printer};
use crate::progress;
use crate::signals::stop_flag;

/// Runs a demonstration.
pub(super) fn run(command: DemoCommand, global: GlobalArguments, printer: Printer) -> Outcome {
    let DemoCommand::PlantedRank(arguments) = command;
    let config = PlantedConfig {
        rank: arguments.rank,
        n: arguments.n,
        layers: arguments.layers,
        inputs: arguments.inputs.into(),
        seed: arguments.first_seed,
        ..PlantedConfig::default()
    };
    config.check()?;
    let (device, stop) = (device::open("cpu")?, stop_flag()?);
    let settings = PlantedSettings::for_layers(config.layers);
    let mut runs = Vec::new();
    let mut sink = progress::sink(printer, global.progress_style(), &stop);
    for index in 0..arguments.seeds {
        let config = PlantedConfig { seed: arguments.first_seed + index as u64, ..config };
        let task = PlantedTask::new(config, &device)?;
        let label =
            format!("planted rank {} / {} rows / seed {}", config.rank, config.n, config.seed);
        sink.event(&Event::RunStarted {
            index: index + 1,
            runs: arguments.seeds,
            label: label.clone(),
            steps: settings.steps,
            done: 0,
        });
        let Some(found) = recover(&task, &settings, &device, &mut *sink, &stop)? else {
            drop(sink);
            printer.note("interrupted; nothing is kept of this seed");
            return Ok(ExitStatus::Requeue);
        };
        sink.event(&Event::RunFinished {
            label,
            summary: format!("found rank {}", ranks(&found)),
            seconds: found.seconds,
        });
        runs.push(found);
    }
    drop(sink); // gives the screen back
    let report = report(&arguments, &runs);
    if let Some(out) = &arguments.out {
        save(out, &report, &runs)?;
    }
    match printer.format() {
        Format::Json => printer.data(&serde_json::to_string_pretty(&report)?)?,
        Format::Text => printer.data(&text(&runs))?,
    }
    Ok(ExitStatus::Done)
}

/// `3`, or `3 + 2` of two layers.
fn ranks(run: &Recovery) -> String {
    run.layers.iter().map(|layer| layer.found.to_string()).collect::<Vec<_>>().join(" + ")
}

fn text(runs: &[Recovery]) -> String {
    let row = |run: &Recovery| {
        let planted = vec![run.planted_rank.to_string(); run.layers.len()].join(" + ");
        let losses = [run.nll_mean, run.nll_mc, run.nll_oracle].map(|nll| format!("{nll:.4}"));
        [vec![run.seed.to_string(), planted, ranks(run)], losses.to_vec()].concat()
    };
    let header =
        ["seed", "planted", "found", "NLL at the mean", "NLL, 10 draws", "NLL of the truth"];
    let exact = runs.iter().filter(|run| run.is_exact()).count();
    let picture = runs.first().map(terminal).unwrap_or_default();
    format!(
        "{picture}\n{}\nThe planted rank was found in {exact} of {} runs.",
        table(&header, runs.iter().map(row).collect()),
        runs.len()
    )
}

fn report(arguments: &PlantedRankArguments, runs: &[Recovery]) -> Value {
    let all = |of: &dyn Fn(&Recovery) -> Value| runs.iter().map(of).collect::<Vec<_>>();
    let run = |run: &Recovery| {
        let losses: Vec<f64> = run.path.points.iter().map(|point| point.loss).collect();
        json!({ "seed": run.seed, "layers": run.layers, "nll_by_rank": losses })
    };
    json!({
        "planted_rank": arguments.rank,
        "n": arguments.n,
        "layers": arguments.layers,
        "seeds": all(&|r| r.seed.into()),
        "found_rank": all(&|r| r.found_rank().into()),
        "exact": all(&|r| r.is_exact().into()),
        "nll_mean": all(&|r| r.nll_mean.into()),
        "nll_mc": all(&|r| r.nll_mc.into()),
        "nll_oracle": all(&|r| r.nll_oracle.into()),
        "seconds": all(&|r| r.seconds.into()),
        "runs": all(&run),
    })
}
