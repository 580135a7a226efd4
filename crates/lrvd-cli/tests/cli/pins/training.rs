//! A short training of every method on both shipped models, each stopped by a signal and resumed, with its records.
#![cfg(unix)]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Pins, UNPINNED, hash};
use crate::support::{files_below, signal};

/// Folders of runs below `out` that have a checkpoint.
fn with_checkpoints(out: &Path) -> Vec<PathBuf> {
    let mut folders = vec![out.to_owned()];
    let mut found = Vec::new();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for path in entries.filter_map(|entry| Some(entry.ok()?.path())) {
            match path.file_name().and_then(|name| name.to_str()) {
                Some(name) if name.starts_with("step-") => found.push(folder.clone()),
                Some("data" | "adapter") | None => {}
                Some(_) if path.is_dir() => folders.push(path),
                Some(_) => {}
            }
        }
    }
    found
}

/// Runs the command to its end, and stops every training once, after its first checkpoint; the number of stops.
pub(crate) fn run_with_stops(command: impl Fn() -> Command, out: &Path) -> usize {
    let mut stopped = BTreeSet::new();
    loop {
        let mut child = command().stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
        let mut is_told = false;
        while child.try_wait().unwrap().is_none() {
            let mut new = with_checkpoints(out).into_iter().filter(|run| !stopped.contains(run));
            if let Some(run) = new.next_back().filter(|_| !is_told) {
                signal(&child, "-TERM");
                is_told = true;
                stopped.insert(run);
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        let output = child.wait_with_output().unwrap();
        match output.status.code() {
            Some(0) => return stopped.len(),
            Some(75) => {}
            other => panic!("{other:?}: {}", String::from_utf8_lossy(&output.stderr)),
        }
    }
}

impl Pins {
    /// Pins of the runs of a suite.
    pub(super) fn runs(&mut self, out: &str) {
        let results = self.dir.json(&format!("{out}/results.json"));
        for run in results["runs"].as_array().unwrap() {
            let [task, method] = ["task", "method"].map(|key| run[key].as_str().unwrap());
            let key = method.to_lowercase();
            let ranks: Vec<String> = run["rank_events"]
                .as_array()
                .unwrap()
                .iter()
                .map(|event| format!("{}:{}", event["step"], event["total_rank"]))
                .collect();
            let events = hash(run["rank_events"].to_string().as_bytes());
            self.exact(&format!("{key}.ranks"), format!("{} {events}", ranks.join(" ")));
            self.json(&format!("{key}.parameters"), &run["trainable_parameters"]);
            self.json(&format!("{key}.fitted"), &run["fitted"]);
            for (choice, checkpoint) in run["checkpoints"].as_object().unwrap() {
                for (draws, metrics) in checkpoint["metrics"].as_object().into_iter().flatten() {
                    let value = |name: &str| metrics[name].as_f64();
                    let values =
                        ["nll", "accuracy", "ece", "brier", "entropy", "mutual_information"];
                    let name = format!("{key}.{choice}.{draws}");
                    self.near(&name, values.iter().filter_map(|name| value(name)));
                }
            }
            for (set, ood) in run["ood"].as_object().unwrap() {
                self.json(&format!("{key}.ood.{set}"), ood);
            }
            let losses =
                run["history"].as_array().unwrap().iter().filter_map(|p| p["loss"].as_f64());
            self.near(&format!("{key}.losses"), losses);
            let folder = self.dir.path(&format!("{out}/runs/{task}/{key}/seed-1"));
            // Rows that average others have no folder.
            let files = if folder.is_dir() { files_below(&folder) } else { Vec::new() };
            // The others name places of this machine.
            let is_pinned = |file: &&PathBuf| {
                file.extension().is_some_and(|end| end == "safetensors" || end == "jsonl")
            };
            for file in files.iter().filter(is_pinned) {
                let name = file.strip_prefix(&folder).unwrap().display().to_string();
                self.bits(&format!("{key}/{name}"), file);
            }
        }
    }

    /// The table of every checkpoint, a line of the file a line of self.
    pub(super) fn tables(&mut self, name: &str, out: &str) {
        for choice in ["last", "best"] {
            let table = self.dir.text(&format!("{out}/table-{choice}.csv"));
            let is_pinned = |line: &&str| !UNPINNED.split(' ').any(|start| line.starts_with(start));
            for line in table.lines().filter(is_pinned) {
                let (key, numbers) =
                    line.split_at(line.match_indices(',').nth(2).map_or(line.len(), |m| m.0));
                let numbers: Vec<&str> = numbers.trim_start_matches(',').split(',').collect();
                let key = format!("{name}.{choice}.{}", key.replace([',', ' '], "."));
                match numbers.iter().map(|n| n.parse()).collect::<Result<Vec<f64>, _>>() {
                    Ok(numbers) => self.near(&key, numbers),
                    Err(_) => self.exact(&key, numbers.join(",")),
                }
            }
        }
    }
}
