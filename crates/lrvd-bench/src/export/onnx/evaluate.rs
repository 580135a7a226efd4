//! Executes a written file node by node, by the definitions of its operators.
//!
//! It reads what another program reads: the bytes of the file. Products and the error function are Burn's, everything else is
//! loops. Nothing is fused, so memory holds every intermediate result until its last reader.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};
use burn::tensor::{Device, Tensor, TensorData};
use prost::Message as _;

use super::encoder::{IDS, MASK, TYPE_IDS};
use super::schema::{AttributeProto, DataType, ModelProto, NodeProto, TensorProto};
use crate::error::Result;
use crate::io::cannot;

/// Values with a shape; no axis for a single one. Truth values are integers.
#[derive(Clone, Debug, PartialEq)]
struct Array {
    shape: Vec<usize>,
    data: Data,
}

#[derive(Clone, Debug, PartialEq)]
enum Data {
    Float(Vec<f32>),
    Int(Vec<i64>),
}

/// The outputs of the file for padded rows of token ids and segment ids, by name.
pub(super) fn run(
    file: &Path,
    rows: &[(&[u32], &[u32])],
    pad_id: u32,
    device: &Device,
) -> Result<BTreeMap<String, Vec<f32>>> {
    let bytes = std::fs::read(file).map_err(cannot("read", file))?;
    let model = ModelProto::decode(&*bytes)?;
    drop(bytes);
    let graph = model.graph.ok_or_else(|| anyhow!("has no graph"))?;
    let mut values = BTreeMap::new();
    for tensor in graph.initializer {
        let name = tensor.name.clone();
        values.insert(name.clone(), constant(tensor, file).context(name)?);
    }
    let length = rows.iter().map(|(ids, _)| ids.len()).max().unwrap_or(0);
    let fill = |of: &dyn Fn(usize, usize) -> u32| {
        let cells = (0..rows.len()).flat_map(|row| (0..length).map(move |i| (row, i)));
        let data = Data::Int(cells.map(|(row, i)| i64::from(of(row, i))).collect());
        Array { shape: vec![rows.len(), length], data }
    };
    for input in &graph.input {
        let array = match &*input.name {
            IDS => fill(&|row, i| rows[row].0.get(i).copied().unwrap_or(pad_id)),
            MASK => fill(&|row, i| u32::from(i < rows[row].0.len())),
            TYPE_IDS => fill(&|row, i| rows[row].1.get(i).copied().unwrap_or(0)),
            other => bail!("has an input `{other}`, which no encoder here reads"),
        };
        values.insert(input.name.clone(), array);
    }
    let mut readers: BTreeMap<&str, usize> = BTreeMap::new();
    for name in graph.node.iter().flat_map(|node| &node.input) {
        *readers.entry(name).or_default() += 1;
    }
    for node in &graph.node {
        let inputs: Vec<&Array> = node
            .input
            .iter()
            .map(|name| {
                values.get(name).ok_or_else(|| anyhow!("`{}` reads `{name}` too early", node.name))
            })
            .collect::<Result<_>>()?;
        let results = match &*node.op_type {
            "DynamicQuantizeLinear" => rounded(inputs[0]),
            _ => apply(node, &inputs, device).map(|result| vec![result]),
        };
        let results = results.with_context(|| format!("node `{}`", node.name))?;
        for name in &node.input {
            let left = readers.entry(name).or_default();
            *left = left.saturating_sub(1);
            if *left == 0 {
                values.remove(name);
            }
        }
        values.extend(node.output.iter().cloned().zip(results));
    }
    let output = |name: &String| {
        let array = values.remove(name).ok_or_else(|| anyhow!("has no output `{name}`"))?;
        Ok((name.clone(), array.floats()?.to_vec()))
    };
    graph.output.iter().map(|output| &output.name).map(output).collect()
}

fn constant(tensor: TensorProto, file: &Path) -> Result<Array> {
    let shape: Vec<usize> = tensor.dims.iter().map(|&length| length as usize).collect();
    let bytes = match tensor.raw_data {
        Some(bytes) => bytes,
        None => beside(&tensor, file)?,
    };
    let data = match DataType::try_from(tensor.data_type)? {
        DataType::Float => {
            Data::Float(bytes.as_chunks().0.iter().map(|raw| f32::from_le_bytes(*raw)).collect())
        }
        DataType::Int64 => {
            Data::Int(bytes.as_chunks().0.iter().map(|raw| i64::from_le_bytes(*raw)).collect())
        }
        DataType::Int8 => {
            Data::Int(bytes.into_iter().map(|byte| byte.cast_signed().into()).collect())
        }
        other => bail!("values of the type {other:?}"),
    };
    Array::new(shape, data)
}

/// The bytes of a tensor in another file.
fn beside(tensor: &TensorProto, file: &Path) -> Result<Vec<u8>> {
    use std::io::{Read as _, Seek as _, SeekFrom};
    let entry = |key: &str| {
        let entry = tensor.external_data.iter().find(|entry| entry.key == key);
        entry.map(|entry| &entry.value).ok_or_else(|| anyhow!("no `{key}` of the other file"))
    };
    let path = file.with_file_name(entry("location")?);
    let mut bytes = vec![0; entry("length")?.parse()?];
    let mut other = std::fs::File::open(&path).map_err(cannot("read", &path))?;
    other.seek(SeekFrom::Start(entry("offset")?.parse()?)).map_err(cannot("read", &path))?;
    other.read_exact(&mut bytes).map_err(cannot("read", &path))?;
    Ok(bytes)
}

impl Array {
    fn new(shape: Vec<usize>, data: Data) -> Result<Self> {
        let found = match &data {
            Data::Float(values) => values.len(),
            Data::Int(values) => values.len(),
        };
        if shape.iter().product::<usize>() != found {
            bail!("{found} values for the shape {shape:?}");
        }
        Ok(Self { shape, data })
    }

    fn floats(&self) -> Result<&[f32]> {
        match &self.data {
            Data::Float(values) => Ok(values),
            Data::Int(_) => bail!("integers, expected numbers"),
        }
    }

    fn ints(&self) -> Result<&[i64]> {
        match &self.data {
            Data::Int(values) => Ok(values),
            Data::Float(_) => bail!("numbers, expected integers"),
        }
    }

    /// The values at these places, under a shape.
    fn at(&self, shape: Vec<usize>, places: &[usize]) -> Result<Self> {
        let data = match &self.data {
            Data::Float(values) => Data::Float(places.iter().map(|&at| values[at]).collect()),
            Data::Int(values) => Data::Int(places.iter().map(|&at| values[at]).collect()),
        };
        Self::new(shape, data)
    }

    /// Repeated along axes of length 1, and along new ones at the front.
    fn broadcast(&self, shape: &[usize]) -> Result<Self> {
        let own = strides(&self.shape);
        let new = shape.len().checked_sub(own.len()).context("fewer axes than before")?;
        let mut steps = vec![0; new];
        for ((&length, &own), &stride) in shape[new..].iter().zip(&self.shape).zip(&own) {
            steps.push(match own {
                1 => 0,
                own if own == length => stride,
                _ => bail!("the shape {:?} does not fit {shape:?}", self.shape),
            });
        }
        self.at(shape.to_vec(), &places(shape, &steps))
    }
}

/// Distance of neighbours along each axis.
fn strides(shape: &[usize]) -> Vec<usize> {
    (0..shape.len()).map(|axis| shape[axis + 1..].iter().product()).collect()
}

/// Places of all values of a shape, in order, for these distances of neighbours.
fn places(shape: &[usize], steps: &[usize]) -> Vec<usize> {
    let mut all = vec![0];
    for (&length, &step) in shape.iter().zip(steps) {
        all = all.iter().flat_map(|&at| (0..length).map(move |i| at + i * step)).collect();
    }
    all
}

/// The shape of two that are repeated to fit each other.
fn common(a: &[usize], b: &[usize]) -> Vec<usize> {
    let axes = a.len().max(b.len());
    let length = |shape: &[usize], axis: usize| {
        (axis + shape.len()).checked_sub(axes).map_or(1, |axis| shape[axis])
    };
    (0..axes).map(|axis| length(a, axis).max(length(b, axis))).collect()
}

fn attribute<'a>(node: &'a NodeProto, name: &str) -> Option<&'a AttributeProto> {
    node.attribute.iter().find(|own| own.name == name)
}

fn int(node: &NodeProto, name: &str, usual: i64) -> i64 {
    attribute(node, name).and_then(|own| own.i).unwrap_or(usual)
}

/// An axis that may be counted from the end.
fn axis(axis: i64, axes: usize) -> usize {
    (if axis < 0 { axis + axes as i64 } else { axis }) as usize
}

#[expect(clippy::too_many_lines, reason = "one arm for each operator")]
fn apply(node: &NodeProto, inputs: &[&Array], device: &Device) -> Result<Array> {
    let x = *inputs.first().context("no input")?;
    let second = || inputs.get(1).copied().context("no second input");
    let shape = x.shape.clone();
    let each = |of: &dyn Fn(f32) -> f32| {
        Array::new(shape.clone(), Data::Float(x.floats()?.iter().map(|&value| of(value)).collect()))
    };
    match &*node.op_type {
        "Identity" => Ok(x.clone()),
        "Tanh" => each(&f32::tanh),
        "Relu" => each(&|value| value.max(0.0)),
        "Sigmoid" => each(&|value| 1.0 / (1.0 + (-value).exp())),
        "Erf" => {
            let values = x.floats()?.to_vec();
            let length = values.len();
            let x = Tensor::<1>::from_data(TensorData::new(values, [length]), device);
            Array::new(shape, Data::Float(x.erf().into_data().iter::<f32>().collect()))
        }
        "Add" => pairs(x, second()?, |a, b| a + b, |a, b| a + b),
        "Sub" => pairs(x, second()?, |a, b| a - b, |a, b| a - b),
        "Mul" => pairs(x, second()?, |a, b| a * b, |a, b| a * b),
        "Div" => pairs(x, second()?, |a, b| a / b, |a, b| a / b),
        "Equal" => pairs(x, second()?, |a, b| f32::from(a == b), |a, b| i64::from(a == b)),
        "Not" => {
            Array::new(shape, Data::Int(x.ints()?.iter().map(|&v| i64::from(v == 0)).collect()))
        }
        "Cast" => cast(node, x),
        "Shape" => {
            let lengths: Vec<i64> = shape.iter().map(|&length| length as i64).collect();
            Array::new(vec![lengths.len()], Data::Int(lengths))
        }
        "Range" => {
            let end = second()?.ints()?[0];
            let all: Vec<i64> = (x.ints()?[0]..end).collect();
            Array::new(vec![all.len()], Data::Int(all))
        }
        "Clip" => {
            let bounds = [second()?.ints()?[0], inputs[2].ints()?[0]];
            let all = x.ints()?.iter().map(|&value| value.clamp(bounds[0], bounds[1]));
            Array::new(shape, Data::Int(all.collect()))
        }
        "CumSum" => {
            let mut sum = 0;
            let row = shape.last().copied().unwrap_or(1);
            let all = x.ints()?.iter().enumerate().map(|(at, &value)| {
                sum = if at % row == 0 { value } else { sum + value };
                sum
            });
            Array::new(shape, Data::Int(all.collect()))
        }
        "Unsqueeze" => {
            let mut axes = second()?.ints()?.to_vec();
            axes.sort_unstable();
            let mut shape = shape;
            for axis in axes {
                shape.insert(axis as usize, 1);
            }
            Array::new(shape, x.data.clone())
        }
        "Reshape" => {
            let new = second()?.ints()?.iter().enumerate();
            let new = new.map(|(i, &n)| if n == 0 { shape[i] } else { n as usize });
            Array::new(new.collect(), x.data.clone())
        }
        "Expand" => {
            let new: Vec<usize> = second()?.ints()?.iter().map(|&length| length as usize).collect();
            x.broadcast(&common(&shape, &new))
        }
        "Transpose" => {
            let order = &attribute(node, "perm").context("no order")?.ints;
            let own = strides(&shape);
            let new: Vec<usize> = order.iter().map(|&axis| shape[axis as usize]).collect();
            let steps: Vec<usize> = order.iter().map(|&axis| own[axis as usize]).collect();
            x.at(new.clone(), &places(&new, &steps))
        }
        "Concat" => {
            let all = inputs.iter().map(|input| input.ints());
            let all = all.collect::<Result<Vec<_>>>()?.concat();
            Array::new(vec![all.len()], Data::Int(all))
        }
        "Gather" => gather(x, second()?, axis(int(node, "axis", 0), shape.len())),
        "GatherElements" => {
            let rows = second()?;
            let (own, row) = (shape.last().copied(), rows.shape.last().copied());
            let (own, row) = (own.unwrap_or(1), row.unwrap_or(1));
            let places = rows.ints()?.iter().enumerate();
            let places: Vec<usize> =
                places.map(|(at, &column)| at / row * own + column as usize).collect();
            x.at(rows.shape.clone(), &places)
        }
        "ReduceSum" => sum(x, axis(second()?.ints()?[0], shape.len())),
        "Softmax" => by_row(x, |row| {
            let largest = row.iter().copied().fold(f32::MIN, f32::max);
            for value in &mut *row {
                *value = (*value - largest).exp();
            }
            let sum: f32 = row.iter().sum();
            for value in row {
                *value /= sum;
            }
        }),
        "LayerNormalization" => {
            let epsilon = attribute(node, "epsilon").and_then(|own| own.f).unwrap_or(1e-5);
            let scale = second()?.floats()?;
            let zeros = vec![0.0; scale.len()];
            let shift = inputs.get(2).map_or(Ok(&*zeros), |shift| shift.floats())?;
            by_row(x, |row| {
                let n = row.len() as f64;
                let mean = row.iter().map(|&v| f64::from(v)).sum::<f64>() / n;
                let variance = row.iter().map(|&v| (f64::from(v) - mean).powi(2)).sum::<f64>() / n;
                let factor = 1.0 / (variance + f64::from(epsilon)).sqrt();
                for ((value, scale), shift) in row.iter_mut().zip(scale).zip(shift) {
                    *value = ((f64::from(*value) - mean) * factor) as f32 * scale + shift;
                }
            })
        }
        "MatMul" => product(x, second()?, device),
        "MatMulInteger" => {
            let floats = |x: &Array, zero: i64| {
                let values = x.ints()?.iter().map(|&value| (value - zero) as f32).collect();
                Array::new(x.shape.clone(), Data::Float(values))
            };
            let (a, b) = (floats(x, inputs[2].ints()?[0])?, floats(second()?, 0)?);
            let product = product(&a, &b, device)?;
            let sums = product.floats()?.iter().map(|&sum| sum.round() as i64).collect();
            Array::new(product.shape, Data::Int(sums))
        }
        "Conv" => convolution(x, second()?, inputs[2]),
        other => bail!("the operator `{other}` is not executed here"),
    }
}

/// `DynamicQuantizeLinear`: values in 8 bits, the step between them, and the stored value of 0.
fn rounded(x: &Array) -> Result<Vec<Array>> {
    let values = x.floats()?;
    let low = values.iter().copied().fold(0.0, f32::min);
    let high = values.iter().copied().fold(0.0, f32::max);
    let step = if high > low { (high - low) / 255.0 } else { 1.0 };
    let zero = (-low / step).clamp(0.0, 255.0).round_ties_even();
    let byte = |&value: &f32| ((value / step).round_ties_even() + zero).clamp(0.0, 255.0) as i64;
    Ok(vec![
        Array::new(x.shape.clone(), Data::Int(values.iter().map(byte).collect()))?,
        Array::new(Vec::new(), Data::Float(vec![step]))?,
        Array::new(Vec::new(), Data::Int(vec![zero as i64]))?,
    ])
}

fn cast(node: &NodeProto, x: &Array) -> Result<Array> {
    let to = DataType::try_from(int(node, "to", 0) as i32)?;
    let data = match (to, &x.data) {
        (DataType::Float, Data::Int(values)) => {
            Data::Float(values.iter().map(|&value| value as f32).collect())
        }
        (DataType::Int64, Data::Int(_)) | (DataType::Float, Data::Float(_)) => x.data.clone(),
        (to, _) => bail!("a conversion to {to:?}"),
    };
    Array::new(x.shape.clone(), data)
}

fn pairs(
    a: &Array,
    b: &Array,
    floats: impl Fn(f32, f32) -> f32,
    ints: impl Fn(i64, i64) -> i64,
) -> Result<Array> {
    let shape = common(&a.shape, &b.shape);
    let (a, b) = (a.broadcast(&shape)?, b.broadcast(&shape)?);
    let data = match (&a.data, &b.data) {
        (Data::Float(a), Data::Float(b)) => {
            Data::Float(a.iter().zip(b).map(|(&a, &b)| floats(a, b)).collect())
        }
        (Data::Int(a), Data::Int(b)) => {
            Data::Int(a.iter().zip(b).map(|(&a, &b)| ints(a, b)).collect())
        }
        _ => bail!("numbers with integers"),
    };
    Array::new(shape, data)
}

/// Slices of `x` along an axis, in place of the axis the shape of `rows`.
fn gather(x: &Array, rows: &Array, axis: usize) -> Result<Array> {
    let (before, after) = (&x.shape[..axis], &x.shape[axis + 1..]);
    let (outer, inner): (usize, usize) = (before.iter().product(), after.iter().product());
    let length = x.shape[axis];
    let mut places = Vec::new();
    for block in 0..outer {
        for &row in rows.ints()? {
            if !(0..length as i64).contains(&row) {
                bail!("row {row} of {length}");
            }
            let start = (block * length + row as usize) * inner;
            places.extend(start..start + inner);
        }
    }
    x.at([before, &rows.shape, after].concat(), &places)
}

/// Sums over an axis, which disappears.
fn sum(x: &Array, axis: usize) -> Result<Array> {
    let (before, after) = (&x.shape[..axis], &x.shape[axis + 1..]);
    let length = x.shape[axis];
    let inner = after.iter().product::<usize>();
    let mut sums = vec![0.0_f32; before.iter().product::<usize>() * inner];
    for (at, value) in x.floats()?.iter().enumerate() {
        sums[at / (length * inner) * inner + at % inner] += value;
    }
    Array::new([before, after].concat(), Data::Float(sums))
}

/// Changes every slice along the last axis.
fn by_row(x: &Array, mut change: impl FnMut(&mut [f32])) -> Result<Array> {
    let mut values = x.floats()?.to_vec();
    let width = x.shape.last().copied().unwrap_or(1).max(1);
    values.chunks_mut(width).for_each(&mut change);
    Array::new(x.shape.clone(), Data::Float(values))
}

/// Matrices of the last two axes, which are multiplied for each place of the others.
fn product(a: &Array, b: &Array, device: &Device) -> Result<Array> {
    let &[.., rows, depth] = &*a.shape else { bail!("no matrix") };
    let &[.., own, columns] = &*b.shape else { bail!("no matrix") };
    if own != depth {
        bail!("the shapes {:?} and {:?}", a.shape, b.shape);
    }
    if b.shape.len() == 2 && a.shape.len() > 2 {
        // One matrix for all places.
        let all = a.shape[..a.shape.len() - 1].iter().product();
        let flat = Array::new(vec![all, depth], a.data.clone())?;
        let shape = [&a.shape[..a.shape.len() - 1], &[columns]].concat();
        return Array::new(shape, product(&flat, b, device)?.data);
    }
    let outer = common(&a.shape[..a.shape.len() - 2], &b.shape[..b.shape.len() - 2]);
    let of = |x: &Array, own: [usize; 2]| {
        let all = x.broadcast(&[&*outer, &own].concat())?;
        let shape = [outer.iter().product(), own[0], own[1]];
        Ok::<_, anyhow::Error>(Tensor::<3>::from_data(
            TensorData::new(all.floats()?.to_vec(), shape),
            device,
        ))
    };
    let result = of(a, [rows, depth])?.matmul(of(b, [depth, columns])?);
    let shape = [&*outer, &[rows, columns]].concat();
    Array::new(shape, Data::Float(result.into_data().iter::<f32>().collect()))
}

/// Of `[batch, channels, length]` with a kernel `[out, channels, width]`, padded to the same length.
fn convolution(x: &Array, kernel: &Array, bias: &Array) -> Result<Array> {
    let (&[batch, channels, length], &[out, _, width]) = (&*x.shape, &*kernel.shape) else {
        bail!("the shapes {:?} and {:?}", x.shape, kernel.shape);
    };
    let (values, weights, bias) = (x.floats()?, kernel.floats()?, bias.floats()?);
    let mut results = Vec::with_capacity(batch * out * length);
    for row in 0..batch {
        for (to, shift) in bias.iter().enumerate() {
            for at in 0..length {
                let mut sum = f64::from(*shift);
                for (from, step) in (0..channels).flat_map(|c| (0..width).map(move |k| (c, k))) {
                    let place = (at + step).checked_sub(width / 2).filter(|&place| place < length);
                    let Some(place) = place else { continue };
                    let value = values[(row * channels + from) * length + place];
                    sum += f64::from(value)
                        * f64::from(weights[(to * channels + from) * width + step]);
                }
                results.push(sum as f32);
            }
        }
    }
    Array::new(vec![batch, out, length], Data::Float(results))
}
