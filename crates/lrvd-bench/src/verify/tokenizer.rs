//! Ids, types, masks and decoded texts.

use lrvd_models::tokenizer::check_items;

use super::{Check, Folder, VerifyError, VerifyOptions, VerifyReport};

pub(super) fn verify(
    folder: &Folder,
    options: &VerifyOptions<'_>,
) -> Result<VerifyReport, VerifyError> {
    let items = check_items(&folder.dir)?;
    let checks = items.into_iter().map(|item| {
        let optional = (!item.equal && !item.required).then_some("differs; not required; ");
        let values = (!item.equal).then(|| {
            format!("{}recorded {}, found {}", optional.unwrap_or(""), item.wanted, item.found)
        });
        Check {
            name: format!("{}: {}", item.name, item.field),
            difference: if item.equal { 0.0 } else { 1.0 },
            tolerance: if item.required { 0.0 } else { 1.0 },
            holds: item.equal || !item.required,
            compared: 1,
            note: values,
        }
    });
    let checks = checks.collect();
    let case = folder.find("case").and_then(|case| case.value.as_str().map(str::to_owned));
    Ok(VerifyReport {
        kind: "tokenizer".to_owned(),
        case: case.unwrap_or_else(|| folder.dir.display().to_string()),
        precision: options.precision,
        checks,
        notes: Vec::new(),
    })
}
