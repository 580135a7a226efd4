//! A tensor on the host: its raw little-endian values, shape and element type, with checked
//! conversions.

use crate::error::Error;
use half::{bf16, f16};
pub use safetensors::Dtype as HostDType;

/// Whether elements of this type are floating-point numbers that can be read.
pub fn is_float(dtype: HostDType) -> bool {
    use HostDType::{BF16, F16, F32, F64};
    matches!(dtype, F16 | BF16 | F32 | F64)
}

/// Bytes of one element; none for the narrow and complex types, which are not read here.
pub(super) fn element_size(dtype: HostDType) -> Option<usize> {
    use HostDType::{BOOL, I8, I16, I32, I64, U8, U16, U32, U64};
    let whole = matches!(dtype, BOOL | U8 | I8 | U16 | I16 | U32 | I32 | U64 | I64);
    (whole || is_float(dtype)).then(|| dtype.bitsize() / 8)
}

/// The error of elements that do not convert without loss of meaning.
pub(crate) fn wrong_type(expected: HostDType, found: HostDType) -> Error {
    Error::Shape(format!("`{found}` values cannot be read as `{expected}`"))
}

/// The error of a shape that has not two axes, or not those that are expected.
pub(crate) fn not_a_matrix(shape: &[usize]) -> Error {
    Error::Shape(format!("expected a matrix, found shape {shape:?}"))
}

/// Raw little-endian values with a shape, row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTensor {
    dtype: HostDType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

/// Constructors from values.
macro_rules! constructors {
    ($($doc:literal $name:ident($value:ty) $dtype:ident)*) => {$(
        #[doc = $doc]
        pub fn $name(shape: &[usize], values: &[$value]) -> Result<Self, Error> {
            let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
            Self::new(HostDType::$dtype, shape.to_vec(), bytes)
        }
    )*};
}

impl HostTensor {
    constructors! {
        "Single-precision values." from_f32(f32) F32
        "Double-precision values." from_f64(f64) F64
        "64-bit integers." from_i64(i64) I64
        "Bytes as unsigned integers." from_u8(u8) U8
    }

    /// Takes raw little-endian bytes.
    pub fn new(dtype: HostDType, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self, Error> {
        let size = element_size(dtype).ok_or_else(|| wrong_type(HostDType::F32, dtype))?;
        let expected = shape
            .iter()
            .try_fold(size, |product, &length| product.checked_mul(length))
            .unwrap_or(usize::MAX);
        if expected == bytes.len() {
            Ok(Self { dtype, shape, bytes })
        } else {
            let found = bytes.len();
            let what =
                format!("shape {shape:?} of `{dtype}` needs {expected} bytes, found {found}");
            Err(Error::Shape(what))
        }
    }

    /// Element type.
    pub fn dtype(&self) -> HostDType {
        self.dtype
    }

    /// Whether the elements are floating-point numbers.
    pub fn is_float(&self) -> bool {
        is_float(self.dtype)
    }

    /// Bytes of one element.
    pub(crate) fn element_size(&self) -> usize {
        self.dtype.bitsize() / 8
    }

    /// Shape, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// Raw little-endian values, row-major.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The raw values themselves.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Number of elements.
    pub fn n_elements(&self) -> usize {
        self.bytes.len() / self.element_size()
    }

    /// The same values under another shape.
    pub fn reshape(self, shape: &[usize]) -> Result<Self, Error> {
        Self::new(self.dtype, shape.to_vec(), self.bytes)
    }

    /// Values in single precision. Doubles are rounded; a finite double beyond the range becomes
    /// infinite.
    pub fn to_f32(&self) -> Result<Vec<f32>, Error> {
        match self.dtype {
            HostDType::F32 => Ok(self.chunks(f32::from_le_bytes)),
            HostDType::F64 => Ok(self.chunks(|raw| f64::from_le_bytes(raw) as f32)),
            HostDType::F16 => Ok(self.chunks(|raw| f16::from_le_bytes(raw).to_f32())),
            HostDType::BF16 => Ok(self.chunks(|raw| bf16::from_le_bytes(raw).to_f32())),
            found => Err(wrong_type(HostDType::F32, found)),
        }
    }

    /// Values in double precision, exact for every type that is accepted.
    ///
    /// 64-bit integers are an error: they do not all fit.
    pub fn to_f64(&self) -> Result<Vec<f64>, Error> {
        match self.dtype {
            HostDType::F64 => Ok(self.chunks(f64::from_le_bytes)),
            HostDType::U32 => Ok(self.chunks(|raw| f64::from(u32::from_le_bytes(raw)))),
            HostDType::F32 | HostDType::F16 | HostDType::BF16 => {
                Ok(self.to_f32()?.into_iter().map(f64::from).collect())
            }
            found @ (HostDType::I64 | HostDType::U64) => Err(wrong_type(HostDType::F64, found)),
            // What is left has at most 32 bits.
            _ => Ok(self.to_i64()?.into_iter().map(|value| value as f64).collect()),
        }
    }

    /// Values as integers; truth values become 0 and 1.
    ///
    /// Floats and unsigned 64-bit integers are an error.
    pub fn to_i64(&self) -> Result<Vec<i64>, Error> {
        match self.dtype {
            HostDType::I64 => Ok(self.chunks(i64::from_le_bytes)),
            HostDType::I32 => Ok(self.chunks(|raw| i64::from(i32::from_le_bytes(raw)))),
            HostDType::U32 => Ok(self.chunks(|raw| i64::from(u32::from_le_bytes(raw)))),
            HostDType::I16 => Ok(self.chunks(|raw| i64::from(i16::from_le_bytes(raw)))),
            HostDType::U16 => Ok(self.chunks(|raw| i64::from(u16::from_le_bytes(raw)))),
            HostDType::I8 => Ok(self.chunks(|raw| i64::from(i8::from_le_bytes(raw)))),
            HostDType::U8 => Ok(self.bytes.iter().map(|&byte| i64::from(byte)).collect()),
            HostDType::BOOL => Ok(self.bytes.iter().map(|&byte| i64::from(byte != 0)).collect()),
            found => Err(wrong_type(HostDType::I64, found)),
        }
    }

    /// The matrix with rows and columns exchanged, in the same element type.
    pub fn transpose2(&self) -> Result<Self, Error> {
        let &[rows, columns] = self.shape.as_slice() else {
            return Err(not_a_matrix(&self.shape));
        };
        let size = self.element_size();
        let mut bytes = Vec::with_capacity(self.bytes.len());
        for column in 0..columns {
            for row in 0..rows {
                let start = (row * columns + column) * size;
                bytes.extend_from_slice(&self.bytes[start..start + size]);
            }
        }
        Ok(Self { dtype: self.dtype, shape: vec![columns, rows], bytes })
    }

    /// The tensor whose row `i` along the first axis is row `order[i]` of this one.
    pub fn select_rows(&self, order: &[usize]) -> Result<Self, Error> {
        let mut shape = self.shape.clone();
        let rows = shape.first().copied().unwrap_or(0);
        if let Some(&row) = order.iter().find(|&&row| row >= rows) {
            return Err(Error::Shape(format!("there is no row {row} in shape {shape:?}")));
        }
        if let Some(first) = shape.first_mut() {
            *first = order.len();
        }
        let size = self.bytes.len() / rows.max(1);
        let mut bytes = Vec::with_capacity(order.len() * size);
        for &row in order {
            bytes.extend_from_slice(&self.bytes[row * size..(row + 1) * size]);
        }
        Ok(Self { dtype: self.dtype, shape, bytes })
    }

    /// Index and value of the first element that is infinite or not a number; none for integers.
    pub fn first_non_finite(&self) -> Option<(usize, f64)> {
        self.first_beyond(f64::MAX)
    }

    /// Index and value of the first element that is larger than `largest` in absolute value, infinite or
    /// not a number; none for integers.
    pub fn first_beyond(&self, largest: f64) -> Option<(usize, f64)> {
        let values: Box<dyn Iterator<Item = f64> + '_> = match self.dtype {
            HostDType::F64 => Box::new(self.elements().map(f64::from_le_bytes)),
            HostDType::F32 => Box::new(self.elements().map(|raw| f32::from_le_bytes(raw).into())),
            HostDType::F16 => Box::new(self.elements().map(|raw| f16::from_le_bytes(raw).into())),
            HostDType::BF16 => Box::new(self.elements().map(|raw| bf16::from_le_bytes(raw).into())),
            _ => return None,
        };
        values.enumerate().find(|(_, value)| !(value.is_finite() && value.abs() <= largest))
    }

    /// Raw elements of `N` bytes; `N` is the size of the element type at every call.
    fn elements<const N: usize>(&self) -> impl Iterator<Item = [u8; N]> + '_ {
        self.bytes.as_chunks::<N>().0.iter().copied()
    }

    fn chunks<const N: usize, T>(&self, convert: impl Fn([u8; N]) -> T) -> Vec<T> {
        self.elements().map(convert).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn converts_every_float_type() {
        // 1.5 and -2 are exact in all four; bit patterns by hand.
        let half = HostTensor::new(HostDType::F16, vec![2], vec![0x00, 0x3E, 0x00, 0xC0]).unwrap();
        let brain =
            HostTensor::new(HostDType::BF16, vec![2], vec![0xC0, 0x3F, 0x00, 0xC0]).unwrap();
        let single = HostTensor::from_f32(&[2], &[1.5, -2.0]).unwrap();
        let double = HostTensor::from_f64(&[2], &[1.5, -2.0]).unwrap();
        for tensor in [half, brain, single, double] {
            assert_eq!(tensor.to_f32().unwrap(), [1.5, -2.0], "{:?}", tensor.dtype());
            assert_eq!(tensor.to_f64().unwrap(), [1.5, -2.0], "{:?}", tensor.dtype());
            let error = tensor.to_i64().unwrap_err().to_string();
            assert_eq!(error, format!("`{}` values cannot be read as `I64`", tensor.dtype()));
        }
    }

    #[test]
    fn converts_integers_without_loss() {
        let wide = HostTensor::from_i64(&[2], &[i64::MIN, 7]).unwrap();
        assert_eq!(wide.to_i64().unwrap(), [i64::MIN, 7]);
        assert!(wide.to_f64().is_err() && wide.to_f32().is_err());
        let unsigned = HostTensor::new(HostDType::U32, vec![1], vec![0xFF; 4]).unwrap();
        assert_eq!(unsigned.to_f64().unwrap(), [4_294_967_295.0]);
        assert_eq!(unsigned.to_i64().unwrap(), [4_294_967_295]);
        let signed = HostTensor::new(HostDType::I16, vec![1], vec![0xFE, 0xFF]).unwrap();
        assert_eq!(signed.to_f64().unwrap(), [-2.0]);
        let truth = HostTensor::new(HostDType::BOOL, vec![3], vec![0, 1, 2]).unwrap();
        assert_eq!(truth.to_i64().unwrap(), [0, 1, 1]);
    }

    #[test]
    fn length_must_fill_the_shape() {
        let error = HostTensor::from_f32(&[2, 3], &[0.0; 5]).unwrap_err().to_string();
        assert_eq!(error, "shape [2, 3] of `F32` needs 24 bytes, found 20");
        assert!(HostTensor::new(HostDType::F64, vec![usize::MAX, 2], Vec::new()).is_err());
        assert!(HostTensor::from_f32(&[0, 3], &[]).is_ok());
        assert_eq!(HostTensor::from_f32(&[], &[1.0]).unwrap().n_elements(), 1);
    }

    #[test]
    fn transposes_a_matrix_of_any_type() {
        let matrix =
            HostTensor::from_u8(&[2, 3], &[1, 2, 3, 4, 5, 6]).unwrap().transpose2().unwrap();
        assert_eq!((matrix.shape(), matrix.bytes()), (&[3, 2][..], &[1, 4, 2, 5, 3, 6][..]));
        let matrix = HostTensor::from_f64(&[1, 2], &[1.0, 2.0]).unwrap().transpose2().unwrap();
        assert_eq!(matrix.to_f64().unwrap(), [1.0, 2.0]);
        assert!(HostTensor::from_u8(&[6], &[0; 6]).unwrap().transpose2().is_err());
        assert_eq!(
            HostTensor::from_f32(&[0, 3], &[]).unwrap().transpose2().unwrap().shape(),
            [3, 0]
        );
    }

    #[test]
    fn rows_are_taken_in_any_order() {
        let tensor = HostTensor::from_f32(&[3, 2], &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0]).unwrap();
        let taken = tensor.select_rows(&[2, 0]).unwrap();
        assert_eq!(
            (taken.shape(), taken.to_f32().unwrap()),
            (&[2, 2][..], vec![5.0, 6.0, 1.0, 2.0])
        );
        let error = tensor.select_rows(&[0, 3]).unwrap_err().to_string();
        assert_eq!(error, "there is no row 3 in shape [3, 2]");
    }

    #[test]
    fn finds_the_first_value_that_is_not_finite() {
        let tensor = HostTensor::from_f32(&[3], &[1.0, f32::NEG_INFINITY, f32::NAN]).unwrap();
        assert_eq!(tensor.first_non_finite(), Some((1, f64::NEG_INFINITY)));
        let large = HostTensor::from_f32(&[3], &[65_504.0, -65_520.0, 1.0]).unwrap();
        assert_eq!(
            (large.first_non_finite(), large.first_beyond(65_504.0)),
            (None, Some((1, -65_520.0)))
        );
        let half = HostTensor::new(HostDType::F16, vec![2], vec![0, 0, 0x00, 0x7E]).unwrap();
        assert!(matches!(half.first_non_finite(), Some((1, value)) if value.is_nan()));
        assert_eq!(HostTensor::from_i64(&[1], &[i64::MAX]).unwrap().first_non_finite(), None);
    }
}
