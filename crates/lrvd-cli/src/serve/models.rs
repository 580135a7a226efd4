//! The models of a server by their names: one, or several adapters on one base.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, PoisonError, RwLock};

use anyhow::{anyhow, bail};
use lrvd_bench::{Error, Result};
use schemars::JsonSchema;
use serde::Serialize;
use time::OffsetDateTime;
use tokio::sync::Mutex;

use super::card::{Card, ClassifierCard, LanguageCard};
use super::model::{Limits, Model};
use super::problem::{Code, Problem};

/// Default name of the model in clients of decision models.
const ALIAS: &str = "jev-latest";

/// Loads the adapter in a folder on the base of the server.
pub(crate) type Load = Box<dyn Fn(&Path) -> Result<Model> + Send + Sync>;

/// Most bytes of a name.
const NAME: usize = 64;

/// A model under its name. Requests hold the one that they came for until they are answered, whatever takes its place.
pub(super) struct Served {
    pub(super) model: Model,
    pub(super) card: Card,
    /// When it was written, seconds after 1970.
    pub(super) created: u64,
}

impl Served {
    /// `model`, which must be able to answer by the draws that it has by default.
    pub(super) fn new(name: Option<String>, model: Model, limits: &Limits) -> Result<Self> {
        let draws = model.options().draws;
        let most = limits.max_draws;
        if draws > most {
            bail!("{draws} draws are more than a request may ask for; raise `--max-draws`, {most}");
        }
        let does_not_answer = |error: Error| anyhow!("the model does not answer: {error}");
        let card = Card::new(&model, name, limits).map_err(does_not_answer)?;
        let created = model.created();
        Ok(Self { model, card, created })
    }

    /// The error for a path that it does not answer at.
    fn elsewhere(&self) -> Problem {
        let name = self.card.name();
        let places = listed(self.card.paths());
        let message = format!(
            "the model `{name}` is of another kind and answers at {places}: `/v1/adapters` lists all models"
        );
        Problem::at(Code::NotFound, "model", message)
    }

    pub(super) fn classifier(&self) -> Result<&ClassifierCard, Problem> {
        match &self.card {
            Card::Classifier(card) => Ok(card),
            Card::Language(_) => Err(self.elsewhere()),
        }
    }

    pub(super) fn language(&self) -> Result<&LanguageCard, Problem> {
        match &self.card {
            Card::Language(card) => Ok(card),
            Card::Classifier(_) => Err(self.elsewhere()),
        }
    }
}

pub(super) struct Models {
    /// At least one, in the order in which they came; one that replaces another has its place.
    all: RwLock<Vec<Arc<Served>>>,
    most: usize,
    pub(super) load: Load,
    /// One adapter is loaded at a time.
    pub(super) turn: Arc<Mutex<()>>,
}

impl Models {
    pub(super) fn new(all: Vec<Served>, most: usize, load: Load) -> Self {
        let all = RwLock::new(all.into_iter().map(Arc::new).collect());
        Self { all, most, load, turn: Arc::default() }
    }

    pub(super) fn all(&self) -> Vec<Arc<Served>> {
        self.all.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The model of requests that name none.
    pub(super) fn first(&self) -> Result<Arc<Served>, Problem> {
        self.all().into_iter().next().ok_or_else(Problem::internal)
    }

    /// The model that a request for `path` names, or else the first one.
    pub(super) fn find(&self, name: Option<&str>, path: &str) -> Result<Arc<Served>, Problem> {
        let found = match name {
            None | Some(ALIAS) => self.first()?,
            Some(name) => {
                let all = self.all();
                let own = all.iter().find(|model| model.card.name() == name);
                own.cloned().ok_or_else(|| unknown(name, &all))?
            }
        };
        if found.card.paths().contains(&path) { Ok(found) } else { Err(found.elsewhere()) }
    }

    /// Paths at which any of them answers.
    pub(super) fn paths(&self) -> BTreeSet<&'static str> {
        self.all().iter().flat_map(|model| model.card.paths()).copied().collect()
    }

    /// Rejects a path where models are asked of another kind than there are.
    pub(super) fn check_path(&self, path: &str) -> Result<(), Problem> {
        let own = self.paths();
        if own.contains(path) {
            return Ok(());
        }
        let message =
            format!("the models of this server are of another kind and answer at {}", listed(own));
        Err(Problem::new(Code::NotFound, message))
    }

    /// Rejects a name for which there is no room.
    pub(super) fn check_room(&self, name: &str) -> Result<(), Problem> {
        let all = self.all();
        if all.len() < self.most || all.iter().any(|model| model.card.name() == name) {
            return Ok(());
        }
        let message = format!("the server has {} adapters, its `--max-adapters`", self.most);
        Err(Problem::new(Code::Conflict, message))
    }

    /// Removes the model of this name, unless requests that name none are for it.
    pub(super) fn remove(&self, name: &str) -> Result<(), Problem> {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        match all.iter().position(|model| model.card.name() == name) {
            None => Err(Problem { field: None, ..unknown(name, &all) }),
            Some(0) => {
                let message = format!(
                    "`{name}` answers requests that name no model: `POST /v1/adapters` replaces it"
                );
                Err(Problem::new(Code::Conflict, message))
            }
            Some(place) => {
                all.remove(place);
                Ok(())
            }
        }
    }

    /// Adds `model`, or replaces the one of its name; `true` if it is new.
    pub(super) fn put(&self, model: Arc<Served>) -> bool {
        let mut all = self.all.write().unwrap_or_else(PoisonError::into_inner);
        match all.iter_mut().find(|old| old.card.name() == model.card.name()) {
            Some(old) => {
                *old = model;
                false
            }
            None => {
                all.push(model);
                true
            }
        }
    }
}

/// The error for a name that no model has.
fn unknown(name: &str, all: &[Arc<Served>]) -> Problem {
    let known = all.iter().map(|model| model.card.name()).chain([ALIAS]);
    let message = format!("there is no model `{name}`, only {}", listed(known));
    Problem::at(Code::NotFound, "model", message)
}

/// Rejects a name that requests could not send, or that means another model.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-._/:".contains(c);
    if !(1..=NAME).contains(&name.len()) || !name.chars().all(is_part) {
        return Err(format!("expected a name of 1 to {NAME} ASCII letters, digits and `-._/:`"));
    }
    if name == ALIAS {
        return Err(format!("`{ALIAS}` means the first model: expected another name"));
    }
    Ok(())
}

/// Names in words.
fn listed<T: AsRef<str>>(names: impl IntoIterator<Item = T>) -> String {
    let quoted = names.into_iter().map(|name| format!("`{}`", name.as_ref()));
    quoted.collect::<Vec<_>>().join(", ")
}

/// `/v1/models`, for the clients of decision models and for those of `OpenAI`.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "Models")]
pub(super) struct ModelList {
    models: Vec<ModelLine>,
    /// `list`
    object: &'static str,
    data: Vec<ModelObject>,
}

#[derive(Serialize, JsonSchema)]
struct ModelLine {
    name: String,
    description: String,
    /// Day on which the model was written.
    release_date: String,
}

#[derive(Serialize, JsonSchema)]
struct ModelObject {
    id: String,
    /// `model`
    object: &'static str,
    /// Seconds since 1970.
    created: u64,
    owned_by: &'static str,
}

impl ModelList {
    pub(super) fn new(all: &[Arc<Served>]) -> Self {
        let line = |model: &Arc<Served>| ModelLine {
            name: model.card.name().to_owned(),
            description: model.card.description(),
            release_date: day(model.created),
        };
        let object = |model: &Arc<Served>| ModelObject {
            id: model.card.name().to_owned(),
            object: "model",
            created: model.created,
            owned_by: "lrvd",
        };
        Self {
            models: all.iter().map(line).collect(),
            object: "list",
            data: all.iter().map(object).collect(),
        }
    }
}

/// The day in UTC, `YYYY-MM-DD`, of a second after 1970.
fn day(seconds: u64) -> String {
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let time = OffsetDateTime::from_unix_timestamp(seconds);
    time.map_or_else(|_| String::new(), |time| time.date().to_string())
}
