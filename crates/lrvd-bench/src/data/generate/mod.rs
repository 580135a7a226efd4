//! What can be trained on where there is no data?
//!
//! Eight tasks in the manner of GLUE, each from a small grammar over words of nineteenth-century novels:
//! deterministic, balanced, with label noise that is stated, and built so that the words of a sentence alone tell
//! little: the label hangs on order, roles, negation and agreement.
//!
//! | File          | Makes                                                     |
//! |---------------|-----------------------------------------------------------|
//! | `lexicon`     | the words                                                 |
//! | `morphology`  | their forms                                               |
//! | `scribe`      | draws of words                                            |
//! | `event`       | who did what to whom, in several wordings                 |
//! | `agreement`   | CoLA                                                      |
//! | `sentiment`   | SST-2                                                     |
//! | `paraphrase`  | MRPC, QQP, STS-B                                          |
//! | `answer`      | QNLI                                                      |
//! | `entailment`  | RTE, MNLI                                                 |
//! | `build`       | splits without shared sentences, and the label noise      |
//! | `write`       | the original file layouts, and the mark of a generated folder |

mod agreement;
mod answer;
mod build;
mod entailment;
mod event;
mod lexicon;
mod morphology;
mod paraphrase;
mod scribe;
mod sentiment;
mod write;

pub use build::{GenerateConfig, Generated, generate};
pub use write::{GeneratedMark, write_all};
