//! The style sheet and the script, kept as files of their own and written into the page.

/// Colours, type and layout, for light, dark and paper.
pub(crate) const CSS: &str = include_str!("style.css");

/// Tooltips, the switch between light and dark, and unfolding for print. The page works without it.
pub(crate) const SCRIPT: &str = include_str!("script.js");
