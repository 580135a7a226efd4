//! Our own prompts: the wording of `blob` without its quirks.
//!
//! Letters by place, text after letter; of a passage as much as fits. Where a prompt has to be cut, the passage (or
//! the question, where there is none) loses its end first, then every choice; the cue always stays.

use super::Room;
use crate::reasoning::item::LETTERS;
use crate::reasoning::set::Layout;
use crate::reasoning::{ChoiceItem, ReasoningSet};
use crate::text::head;

pub(super) fn text(set: ReasoningSet, item: &ChoiceItem, room: Room) -> String {
    if set.spec().layout == Layout::Passage {
        let passage = head(item.passage.as_deref().unwrap_or_default(), room.body);
        let question = head(&item.question, room.choice);
        return format!(
            "Read the passage below and answer the question with the words 'true' or 'false'.\n\n\
             Passage: {passage}\nQuestion: {question}\nAnswer (true or false):"
        );
    }
    let texts = item.choices.iter().map(|choice| head(&choice.text, room.choice));
    let choices = LETTERS.iter().zip(texts).map(|(letter, text)| format!("{letter}) {text}\n"));
    let question = match &item.passage {
        Some(passage) => {
            let (passage, question) = (head(passage, room.body), head(&item.question, room.choice));
            format!("Passage: {passage}\nQuestion: {question}")
        }
        None => format!("Question: {}", head(&item.question, room.body)),
    };
    format!(
        "Return the label of the correct answer for the question below.\n\n\
         {question}\nChoices:\n{}Answer:",
        choices.collect::<String>()
    )
}
