//! Tensors of a fixture on the host, as double-precision numbers.

use std::path::Path;

use lrvd_burn::files::{FileError, HostTensor, TensorError, TensorFile};

use super::VerifyError;

/// Integers up to this are exact in f64.
const EXACT: u64 = 1 << 53;

/// Row-major values with a shape.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Values {
    pub(super) shape: Vec<usize>,
    pub(super) values: Vec<f64>,
}

impl Values {
    pub(super) fn new(shape: impl Into<Vec<usize>>, values: Vec<f64>) -> Self {
        Self { shape: shape.into(), values }
    }

    /// One value per step, or a list.
    pub(super) fn list(values: Vec<f64>) -> Self {
        Self { shape: vec![values.len()], values }
    }

    /// Truth values as 0 and 1.
    pub(super) fn flags(flags: impl IntoIterator<Item = bool>) -> Self {
        Self::list(flags.into_iter().map(|flag| f64::from(u8::from(flag))).collect())
    }

    /// The matrix with rows and columns exchanged; anything else as it is.
    pub(super) fn transposed(&self) -> Self {
        let &[rows, columns] = self.shape.as_slice() else { return self.clone() };
        let mut values = Vec::with_capacity(self.values.len());
        for column in 0..columns {
            values.extend((0..rows).map(|row| self.values[row * columns + column]));
        }
        Self { shape: vec![columns, rows], values }
    }

    /// The two lengths of a matrix.
    pub(super) fn matrix(&self, file: &Path, name: &str) -> Result<[usize; 2], VerifyError> {
        match self.shape.as_slice() {
            &[rows, columns] => Ok([rows, columns]),
            found => Err(VerifyError::shape(file, name, "with two axes", found)),
        }
    }

    /// Largest magnitude; 0 if there is no value.
    pub(super) fn largest(&self) -> f64 {
        self.values.iter().fold(0.0, |largest: f64, v| largest.max(v.abs()))
    }

    /// Refuses another shape.
    pub(super) fn wanted(
        self,
        file: &Path,
        name: &str,
        shape: &[usize],
    ) -> Result<Self, VerifyError> {
        if self.shape == shape {
            return Ok(self);
        }
        Err(VerifyError::shape(file, name, format!("{shape:?}"), &self.shape))
    }
}

/// Refuses another shape.
pub(super) fn same_shape(
    file: &TensorFile,
    name: &str,
    wanted: &[usize],
    found: &[usize],
) -> Result<(), VerifyError> {
    if wanted == found {
        return Ok(());
    }
    Err(VerifyError::shape(file.path(), name, format!("{wanted:?}"), found))
}

/// The floats or small integers of a tensor.
pub(super) fn read(file: &TensorFile, name: &str) -> Result<Values, VerifyError> {
    let tensor = file.read(name)?;
    let values = to_f64(&tensor).map_err(|source| unusable(file, name, source))?;
    Ok(Values { shape: tensor.shape().to_vec(), values })
}

/// As [`read`], refusing values that are not finite: for inputs.
pub(super) fn read_finite(file: &TensorFile, name: &str) -> Result<Values, VerifyError> {
    let read = read(file, name)?;
    match read.values.iter().position(|v| !v.is_finite()) {
        None => Ok(read),
        Some(index) => {
            Err(VerifyError::value(file, name, index, read.values[index], "a finite number"))
        }
    }
}

/// The integers of a tensor, with its shape.
pub(super) fn read_integers(
    file: &TensorFile,
    name: &str,
) -> Result<(Vec<usize>, Vec<i64>), VerifyError> {
    let tensor = file.read(name)?;
    let values = tensor.to_i64().map_err(|source| unusable(file, name, source))?;
    Ok((tensor.shape().to_vec(), values))
}

/// Integers below `limit` as indices.
pub(super) fn read_indices(
    file: &TensorFile,
    name: &str,
    limit: usize,
) -> Result<(Vec<usize>, Vec<usize>), VerifyError> {
    let (shape, values) = read_integers(file, name)?;
    let convert = |(index, value): (usize, i64)| {
        let wanted = || format!("an index below {limit}");
        let small = usize::try_from(value).ok().filter(|&v| v < limit);
        small.ok_or_else(|| VerifyError::value(file, name, index, value as f64, wanted()))
    };
    let indices = values.into_iter().enumerate().map(convert).collect::<Result<_, _>>()?;
    Ok((shape, indices))
}

fn to_f64(tensor: &HostTensor) -> Result<Vec<f64>, TensorError> {
    if tensor.is_float() {
        return tensor.to_f64();
    }
    let values = tensor.to_i64()?;
    // An integer beyond the exact range would compare equal to its neighbours.
    Ok(values
        .into_iter()
        .map(|v| if v.unsigned_abs() <= EXACT { v as f64 } else { f64::NAN })
        .collect())
}

fn unusable(file: &TensorFile, name: &str, source: TensorError) -> VerifyError {
    VerifyError::Tensor { file: file.path().to_path_buf(), name: name.to_owned(), source }
}

/// Opens a safetensors file of the folder.
pub(super) fn open(dir: &Path, name: &str) -> Result<TensorFile, FileError> {
    TensorFile::open(dir.join(name))
}
