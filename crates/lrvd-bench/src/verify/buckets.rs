//! Tables of relative positions, as integers.

use lrvd_models::deberta::RelativePositions;

use super::{Comparison, Limit, Values, VerifyError, read_integers};

pub(super) fn verify(comparison: &mut Comparison<'_>) -> Result<(), VerifyError> {
    let folder = comparison.folder;
    for table in folder.get("tables")?.list()? {
        let stated = table.get("position_buckets")?;
        // As in `config.json`: a number below 1 stands for "none".
        let buckets = if stated.finite()? < 1.0 { None } else { Some(stated.count()?) };
        let range = table.get("max_position")?.count()?;
        let positions = RelativePositions::new(buckets, range)?;
        let key = format!("b{}_m{range}", stated.value);
        let name = format!("relative.{key}");
        let (shape, relative) = read_integers(comparison.tensors(), &name)?;
        comparison.set_aside(&name, "it is the input of the table");
        let integers = |of: &dyn Fn(i64) -> i64| {
            Values::new(shape.clone(), relative.iter().map(|&r| of(r) as f64).collect())
        };
        let bucket = integers(&|r| positions.bucket(r));
        comparison.tensor(&format!("bucket.{key}"), &bucket, Limit::EXACT)?;
        let row = integers(&|r| i64::from(positions.row(r)));
        comparison.tensor(&format!("gather_index_c2p.{key}"), &row, Limit::EXACT)?;
    }
    Ok(())
}
