//! Cards, jobs and answers without a model, for tests.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use lrvd_bench::adapter::Prediction;
use lrvd_bench::data::{self, Content};
use tokio::sync::oneshot::{Receiver, channel};

use super::access::Access;
use super::metrics::Metrics;
use super::model::{
    Card, ClassifierCard, Found, Input, Key, Kind, LanguageCard, Limits, SCHEMA_VERSION,
};
use super::queue::{Job, Queue, Reply};
use super::routes::App;
use crate::printer::{Format, Printer};

/// Two classes, single texts, at most two of them; answers at the mean or from two draws.
pub(super) fn classifier_card() -> ClassifierCard {
    ClassifierCard {
        schema_version: SCHEMA_VERSION,
        name: "test".to_owned(),
        method: "BayesLoRA".to_owned(),
        kind: Kind::Classes,
        labels: vec!["yes".to_owned(), "no".to_owned()],
        pairs: Some(false),
        draws: 2,
        seed: 7,
        abstain_above: [(0, None), (2, Some(0.6))].into(),
        max_texts: 2,
        max_bytes: 200,
    }
}

/// The same as a card of any model.
pub(super) fn card() -> Card {
    Card::Classifier(classifier_card())
}

/// Up to 20 new tokens, 9 by default, from up to two draws.
pub(super) fn language_card() -> LanguageCard {
    LanguageCard {
        schema_version: SCHEMA_VERSION,
        name: "test".to_owned(),
        method: None,
        kind: Kind::Texts,
        chat: false,
        messages: true,
        tokens: 9,
        max_tokens: 20,
        context: 64,
        draws: 2,
        max_draws: 2,
        seed: 7,
        max_bytes: 200,
    }
}

/// A server of that model with room for three texts.
pub(super) fn app(card: Card, timeout: Duration) -> Arc<App> {
    let limits = Limits {
        batch_size: 4,
        max_draws: 2,
        max_tokens: 20,
        max_texts: 2,
        max_bytes: 200,
        queue: 3,
        timeout,
        max_connections: 8,
    };
    Arc::new(App {
        card,
        limits,
        access: Access::new(([127, 0, 0, 1], 80).into(), Vec::new(), None),
        queue: Queue::new(limits.queue),
        metrics: Metrics::default(),
        stop: Arc::new(AtomicBool::new(false)),
        printer: Printer::new(Format::Text, true),
    })
}

/// A job of `texts` texts that are called `NAME 0`, `NAME 1` and so on.
pub(super) fn job(name: &str, texts: usize, key: Key) -> (Job, Receiver<Reply>) {
    let (reply, receiver) = channel();
    let input = |i| Input::Text(data::Input::text(format!("{name} {i}")));
    let inputs = (0..texts).map(input).collect();
    (Job { inputs, key, reply }, receiver)
}

/// What is asked of the model.
pub(super) fn text(input: &Input) -> &str {
    match input {
        Input::Text(input) => &input.text,
        Input::Prompt(Content::Text { prompt, .. }) => prompt,
        Input::Prompt(Content::Chat(messages)) => &messages[0].content,
    }
}

/// An answer with probability `p` for the first class.
pub(super) fn class(p: f64) -> Found {
    let probabilities = vec![p, 1.0 - p];
    let entropy = -probabilities.iter().map(|p| p * p.ln()).sum::<f64>();
    let class = usize::from(p < 0.5);
    let mutual_information = Some(0.01);
    let prediction =
        Prediction::Class { probabilities, class, entropy, mutual_information, draws: 2 };
    Found::Prediction(prediction, Vec::new())
}
