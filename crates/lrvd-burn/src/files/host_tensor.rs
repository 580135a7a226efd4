//! A tensor on the host: its raw little-endian values, shape and element type, with checked
//! conversions.

use burn::tensor::{DType, Tensor};

use crate::error::Error;
use half::{bf16, f16};
pub use safetensors::Dtype as HostDType;

/// Bytes of one element; none for the narrow and complex types, which are not read here.
pub(super) fn element_size(dtype: HostDType) -> Option<usize> {
    use HostDType::{BF16, BOOL, F16, F32, F64, I8, I16, I32, I64, U8, U16, U32, U64};
    let known = [BOOL, U8, I8, U16, I16, U32, I32, U64, I64, F16, BF16, F32, F64].contains(&dtype);
    known.then(|| dtype.bitsize() / 8)
}

/// The error of elements that do not convert without loss of meaning.
pub(crate) fn wrong_type(expected: HostDType, found: HostDType) -> Error {
    Error::tensor(format_args!("values of the type `{expected}`"), format_args!("`{found}`"))
}

/// The error of a shape that has not two axes, or not those that are expected.
pub(crate) fn not_a_matrix(shape: &[usize]) -> Error {
    Error::tensor("a matrix", format_args!("shape {shape:?}"))
}

/// Transposes a matrix of elements of `N` bytes in blocks of 32 x 32, of which both sides fit into the cache.
fn transpose<const N: usize>(bytes: &[u8], rows: usize, columns: usize) -> Vec<u8> {
    const BLOCK: usize = 32;
    let source = bytes.as_chunks::<N>().0;
    let mut target = vec![[0; N]; source.len()];
    for top in (0..rows).step_by(BLOCK) {
        for left in (0..columns).step_by(BLOCK) {
            for column in left..columns.min(left + BLOCK) {
                for row in top..rows.min(top + BLOCK) {
                    target[column * rows + row] = source[row * columns + column];
                }
            }
        }
    }
    target.into_flattened()
}

/// Raw little-endian values with a shape, row-major.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostTensor {
    dtype: HostDType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

impl HostTensor {
    /// Single-precision values.
    pub fn from_f32(shape: &[usize], values: &[f32]) -> Result<Self, Error> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::new(HostDType::F32, shape.to_vec(), bytes)
    }

    /// Double-precision values.
    pub fn from_f64(shape: &[usize], values: &[f64]) -> Result<Self, Error> {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Self::new(HostDType::F64, shape.to_vec(), bytes)
    }

    /// The values of a flattened tensor under `shape`, in single precision unless they are doubles.
    pub(crate) fn from_flat(flat: Tensor<1>, shape: &[usize]) -> Result<Self, Error> {
        let data = flat.into_data();
        if data.dtype() == DType::F64 {
            Self::from_f64(shape, &data.iter::<f64>().collect::<Vec<_>>())
        } else {
            Self::from_f32(shape, &data.iter::<f32>().collect::<Vec<_>>())
        }
    }

    /// Takes raw little-endian bytes.
    pub fn new(dtype: HostDType, shape: Vec<usize>, bytes: Vec<u8>) -> Result<Self, Error> {
        let size = element_size(dtype).ok_or_else(|| wrong_type(HostDType::F32, dtype))?;
        let expected = shape
            .iter()
            .try_fold(size, |product, &length| product.checked_mul(length))
            .unwrap_or(usize::MAX);
        if expected != bytes.len() {
            let expected = format!("{expected} bytes for `{dtype}` of shape {shape:?}");
            return Err(Error::tensor(expected, bytes.len()));
        }
        Ok(Self { dtype, shape, bytes })
    }

    /// Element type.
    pub fn dtype(&self) -> HostDType {
        self.dtype
    }

    /// `true` if the elements are floating-point numbers.
    pub fn is_float(&self) -> bool {
        use HostDType::{BF16, F16, F32, F64};
        matches!(self.dtype, F16 | BF16 | F32 | F64)
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

    /// Raw little-endian values, row-major, without a copy.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Number of elements.
    pub fn n_elements(&self) -> usize {
        self.bytes.len() / self.element_size()
    }

    /// The tensor with its values under another shape.
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
            HostDType::U8 => Ok(self.chunks(|[byte]| i64::from(byte))),
            HostDType::BOOL => Ok(self.chunks(|[byte]| i64::from(byte != 0))),
            found => Err(wrong_type(HostDType::I64, found)),
        }
    }

    /// The matrix with rows and columns exchanged, in the same element type.
    pub fn transpose2(&self) -> Result<Self, Error> {
        let &[rows, columns] = self.shape.as_slice() else {
            return Err(not_a_matrix(&self.shape));
        };
        let transpose = match self.element_size() {
            1 => transpose::<1>,
            2 => transpose::<2>,
            4 => transpose::<4>,
            _ => transpose::<8>,
        };
        let bytes = transpose(&self.bytes, rows, columns);
        Ok(Self { dtype: self.dtype, shape: vec![columns, rows], bytes })
    }

    /// The tensor whose row `i` along the first axis is row `order[i]` of this one.
    pub fn select_rows(&self, order: &[usize]) -> Result<Self, Error> {
        let mut shape = self.shape.clone();
        let rows = shape.first().copied().unwrap_or(0);
        if let Some(&row) = order.iter().find(|&&row| row >= rows) {
            return Err(Error::tensor(format_args!("a row below {rows}"), row));
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
        let beyond = |(_, value): &(usize, f64)| !(value.is_finite() && value.abs() <= largest);
        match self.dtype {
            HostDType::F64 => self.elements(f64::from_le_bytes).enumerate().find(beyond),
            HostDType::F32 => {
                self.elements(|raw| f32::from_le_bytes(raw).into()).enumerate().find(beyond)
            }
            HostDType::F16 => {
                self.elements(|raw| f16::from_le_bytes(raw).into()).enumerate().find(beyond)
            }
            HostDType::BF16 => {
                self.elements(|raw| bf16::from_le_bytes(raw).into()).enumerate().find(beyond)
            }
            _ => None,
        }
    }

    fn chunks<const N: usize, T>(&self, convert: impl Fn([u8; N]) -> T) -> Vec<T> {
        self.elements(convert).collect()
    }

    /// Elements of `N` bytes; `N` is the size of the element type at every call.
    fn elements<const N: usize, T>(
        &self,
        convert: impl Fn([u8; N]) -> T,
    ) -> impl Iterator<Item = T> {
        self.bytes.as_chunks::<N>().0.iter().map(move |raw| convert(*raw))
    }
}
