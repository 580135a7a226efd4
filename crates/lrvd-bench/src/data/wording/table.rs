//! The prompts of the GLUE tasks, and the default prompts of other data.

use crate::task::GlueTask;

/// Template and answer words, in class order, of a task of GLUE; no words for a regression.
pub(super) const fn of_task(task: GlueTask) -> (&'static str, &'static [&'static str]) {
    match task {
        GlueTask::Cola => {
            ("Sentence: {text}\nIs this sentence grammatical? Answer:", &["no", "yes"])
        }
        GlueTask::Sst2 => ("Review: {text}\nSentiment:", &["negative", "positive"]),
        GlueTask::Mrpc => (
            "Sentence 1: {text}\nSentence 2: {pair}\nDo both sentences mean the same? Answer:",
            &["no", "yes"],
        ),
        GlueTask::Qqp => (
            "Question 1: {text}\nQuestion 2: {pair}\nDo both questions ask the same? Answer:",
            &["no", "yes"],
        ),
        GlueTask::Mnli => (
            "Premise: {text}\nHypothesis: {pair}\nDoes the premise entail the hypothesis (yes, maybe, no)? Answer:",
            &["yes", "maybe", "no"],
        ),
        GlueTask::Qnli => (
            "Question: {text}\nSentence: {pair}\nDoes the sentence answer the question? Answer:",
            &["yes", "no"],
        ),
        GlueTask::Rte => (
            "Premise: {text}\nHypothesis: {pair}\nDoes the premise entail the hypothesis? Answer:",
            &["yes", "no"],
        ),
        GlueTask::Stsb => (
            "Sentence 1: {text}\nSentence 2: {pair}\nHow much alike are they, from 0 to 5? Score:",
            &[],
        ),
    }
}

/// The template of a user's own texts, or pairs of them; the answers are the names of the classes, or a number.
pub(super) const fn of_own(pairs: bool, number: bool) -> &'static str {
    match (pairs, number) {
        (false, false) => "Text: {text}\nLabel:",
        (false, true) => "Text: {text}\nScore:",
        (true, false) => "First text: {text}\nSecond text: {pair}\nLabel:",
        (true, true) => "First text: {text}\nSecond text: {pair}\nScore:",
    }
}
