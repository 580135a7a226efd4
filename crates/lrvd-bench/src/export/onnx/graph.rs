//! A graph under construction: nodes in the order of execution, constants, and the weights that the nodes read.

use std::collections::BTreeMap;

use anyhow::bail;

use super::schema::{
    AttributeProto, AttributeType, DataType, DimensionProto, GraphProto, NodeProto, TensorProto,
    TensorShapeProto, TensorTypeProto, TypeProto, ValueInfoProto,
};
use crate::error::Result;

/// The name of a tensor in the graph.
pub(super) type Value = String;

/// A length of an input or an output.
#[derive(Clone, Copy)]
pub(super) enum Length {
    Free(&'static str),
    Fixed(usize),
}

/// Source of the values of a tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Content {
    Constant(Vec<u8>),
    /// The weight of the merged model with this name.
    Weight(String),
    /// Its transpose: ONNX multiplies by `[in, out]`.
    Transposed(String),
    /// Its rows in 8 bits, transposed or as they are, and the step of each row.
    Bytes {
        name: String,
        transposed: bool,
    },
    Steps(String),
}

/// A tensor of the file.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Constant {
    pub name: Value,
    pub dtype: DataType,
    pub shape: Vec<usize>,
    pub content: Content,
}

/// An attribute of a node.
pub(super) enum Setting {
    Int(&'static str, i64),
    Ints(&'static str, Vec<i64>),
    Float(&'static str, f64),
}

impl Setting {
    fn attribute(self) -> AttributeProto {
        let of = |name: &str, kind: AttributeType| AttributeProto {
            name: name.to_owned(),
            r#type: kind.into(),
            ..AttributeProto::default()
        };
        match self {
            Self::Int(name, i) => AttributeProto { i: Some(i), ..of(name, AttributeType::Int) },
            Self::Ints(name, ints) => AttributeProto { ints, ..of(name, AttributeType::Ints) },
            Self::Float(name, f) => {
                AttributeProto { f: Some(f as f32), ..of(name, AttributeType::Float) }
            }
        }
    }
}

/// Storage of the weights of products and of the word embedding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnnxPrecision {
    Single,
    /// Signed bytes and a step for each output or word; inputs of products are rounded to 8 bits as they come.
    Int8,
}

/// Largest stored value of a weight. Two products of an input in 8 bits and such a weight fit 16 bits (2 · 255 · 63 < 2¹⁵), in which
/// x86 processors without VNNI add them: beyond that they saturate. With VNNI signed weights are the fast ones.
pub(super) const LARGEST: u8 = 63;

pub(super) struct Graph<'a> {
    /// The shape of a weight of the merged model, by its name.
    shape: &'a dyn Fn(&str) -> Option<Vec<usize>>,
    nodes: Vec<NodeProto>,
    pub(super) constants: Vec<Constant>,
    inputs: Vec<ValueInfoProto>,
    outputs: Vec<ValueInfoProto>,
    /// Number of nodes of each operator, for their names.
    counts: BTreeMap<&'static str, usize>,
    precision: OnnxPrecision,
    /// Values in 8 bits, by the value: one is read by several products.
    rounded: BTreeMap<Value, Rounded>,
}

/// `(bytes − zero) · step`.
#[derive(Clone)]
struct Rounded {
    bytes: Value,
    step: Value,
    zero: Value,
}

impl<'a> Graph<'a> {
    pub(super) fn new(
        shape: &'a dyn Fn(&str) -> Option<Vec<usize>>,
        precision: OnnxPrecision,
    ) -> Self {
        Self {
            precision,
            rounded: BTreeMap::new(),
            shape,
            nodes: Vec::new(),
            constants: Vec::new(),
            inputs: Vec::new(),
            outputs: Vec::new(),
            counts: BTreeMap::new(),
        }
    }

    pub(super) fn input(&mut self, name: &str, dtype: DataType, shape: &[Length]) -> Value {
        self.inputs.push(described(name, dtype, shape));
        name.to_owned()
    }

    /// Calls `value` an output.
    pub(super) fn output(&mut self, name: &str, value: Value, shape: &[Length]) {
        let node = NodeProto {
            input: vec![value],
            output: vec![name.to_owned()],
            name: format!("output_{name}"),
            op_type: "Identity".to_owned(),
            attribute: Vec::new(),
        };
        self.nodes.push(node);
        self.outputs.push(described(name, DataType::Float, shape));
    }

    /// The result of an operator.
    pub(super) fn op(
        &mut self,
        kind: &'static str,
        inputs: &[&Value],
        settings: impl IntoIterator<Item = Setting>,
    ) -> Value {
        let count = self.counts.entry(kind).or_default();
        let name = format!("{kind}_{count}");
        *count += 1;
        self.nodes.push(NodeProto {
            input: inputs.iter().map(|&input| input.clone()).collect(),
            output: vec![name.clone()],
            name: name.clone(),
            op_type: kind.to_owned(),
            attribute: settings.into_iter().map(Setting::attribute).collect(),
        });
        name
    }

    /// Integers of this shape, no axis for a single one.
    pub(super) fn ints(&mut self, shape: &[usize], values: &[i64]) -> Value {
        let bytes = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        self.constant("ints", DataType::Int64, shape, Content::Constant(bytes))
    }

    pub(super) fn number(&mut self, value: f64) -> Value {
        self.numbers(&[], &[value])
    }

    /// Numbers of this shape, rounded to single precision.
    pub(super) fn numbers(&mut self, shape: &[usize], values: &[f64]) -> Value {
        let bytes = values.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect();
        self.constant("number", DataType::Float, shape, Content::Constant(bytes))
    }

    /// The weight `name`, which must have this `shape`.
    pub(super) fn weight(&mut self, name: &str, shape: &[usize]) -> Result<Value> {
        self.check(name, shape)?;
        Ok(self.constant(name, DataType::Float, shape, Content::Weight(name.to_owned())))
    }

    fn check(&self, name: &str, expected: &[usize]) -> Result<()> {
        match (self.shape)(name) {
            None => bail!("the merged model has no tensor `{name}` of the shape {expected:?}"),
            Some(found) if found != expected => {
                bail!("`{name}` has the shape {found:?}, expected {expected:?}")
            }
            Some(_) => Ok(()),
        }
    }

    /// `x · Wᵀ + b` with the weight `[out, in]` and the bias of a module.
    pub(super) fn linear(
        &mut self,
        x: &Value,
        path: &str,
        [d_input, d_output]: [usize; 2],
        bias: bool,
    ) -> Result<Value> {
        let name = format!("{path}.weight");
        self.check(&name, &[d_output, d_input])?;
        let shape = [d_input, d_output];
        let product = match self.precision {
            OnnxPrecision::Single => {
                let content = Content::Transposed(name.clone());
                let weight = self.constant(&name, DataType::Float, &shape, content);
                self.op("MatMul", &[x, &weight], [])
            }
            OnnxPrecision::Int8 => {
                let x = self.rounded(x);
                let content = Content::Bytes { name: name.clone(), transposed: true };
                let weight = self.constant(&name, DataType::Int8, &shape, content);
                let steps = self.constant(
                    &name,
                    DataType::Float,
                    &[d_output],
                    Content::Steps(name.clone()),
                );
                let product = self.op("MatMulInteger", &[&x.bytes, &weight, &x.zero], []);
                let product = self.float(&product);
                let step = self.op("Mul", &[&x.step, &steps], []);
                self.op("Mul", &[&product, &step], [])
            }
        };
        if !bias {
            return Ok(product);
        }
        let bias = self.weight(&format!("{path}.bias"), &[d_output])?;
        Ok(self.op("Add", &[&product, &bias], []))
    }

    /// Rows of a table, at these places.
    pub(super) fn rows(&mut self, name: &str, shape: [usize; 2], at: &Value) -> Result<Value> {
        if self.precision == OnnxPrecision::Single {
            let table = self.weight(name, &shape)?;
            return Ok(self.op("Gather", &[&table, at], []));
        }
        self.check(name, &shape)?;
        let content = Content::Bytes { name: name.to_owned(), transposed: false };
        let table = self.constant(name, DataType::Int8, &shape, content);
        let steps =
            self.constant(name, DataType::Float, &[shape[0], 1], Content::Steps(name.to_owned()));
        let bytes = self.op("Gather", &[&table, at], []);
        let bytes = self.float(&bytes);
        let step = self.op("Gather", &[&steps, at], []);
        Ok(self.op("Mul", &[&bytes, &step], []))
    }

    fn float(&mut self, x: &Value) -> Value {
        self.op("Cast", &[x], [Setting::Int("to", DataType::Float as i64)])
    }

    /// `x` in 8 bits, with one step for all values of the batch.
    fn rounded(&mut self, x: &Value) -> Rounded {
        if let Some(known) = self.rounded.get(x) {
            return known.clone();
        }
        let bytes = self.op("DynamicQuantizeLinear", &[x], []);
        let [step, zero] = ["step", "zero"].map(|part| format!("{bytes}_{part}"));
        if let Some(node) = self.nodes.last_mut() {
            node.output.extend([step.clone(), zero.clone()]);
        }
        let rounded = Rounded { bytes, step, zero };
        self.rounded.insert(x.clone(), rounded.clone());
        rounded
    }

    /// The norm of the last axis with scale and shift of a module.
    pub(super) fn layer_norm(
        &mut self,
        x: &Value,
        path: &str,
        d: usize,
        epsilon: f64,
    ) -> Result<Value> {
        let bias = self.weight(&format!("{path}.bias"), &[d])?;
        self.norm(x, path, d, epsilon, Some(&bias))
    }

    /// The norm of the last axis with the scale of a module, which has no shift.
    pub(super) fn unshifted_norm(
        &mut self,
        x: &Value,
        path: &str,
        d: usize,
        epsilon: f64,
    ) -> Result<Value> {
        self.norm(x, path, d, epsilon, None)
    }

    fn norm(
        &mut self,
        x: &Value,
        path: &str,
        d: usize,
        epsilon: f64,
        bias: Option<&Value>,
    ) -> Result<Value> {
        let weight = self.weight(&format!("{path}.weight"), &[d])?;
        let inputs: Vec<&Value> = [x, &weight].into_iter().chain(bias).collect();
        let settings = [Setting::Int("axis", -1), Setting::Float("epsilon", epsilon)];
        Ok(self.op("LayerNormalization", &inputs, settings))
    }

    /// A tensor of the file: the one that there is with this content, or a new one.
    fn constant(
        &mut self,
        name: &str,
        dtype: DataType,
        shape: &[usize],
        content: Content,
    ) -> Value {
        let is_same =
            |own: &&Constant| own.content == content && own.shape == shape && own.dtype == dtype;
        if let Some(own) = self.constants.iter().find(is_same) {
            return own.name.clone();
        }
        let name = match &content {
            Content::Constant(_) => format!("{name}_{}", self.constants.len()),
            Content::Weight(_) => name.to_owned(),
            Content::Transposed(_) => format!("{name}.transposed"),
            Content::Bytes { .. } => format!("{name}.bytes"),
            Content::Steps(_) => format!("{name}.steps"),
        };
        let shape = shape.to_vec();
        self.constants.push(Constant { name: name.clone(), dtype, shape, content });
        name
    }

    /// The graph without the values of its tensors, and the tensors.
    pub(super) fn finish(self, name: &str) -> (GraphProto, Vec<Constant>) {
        let graph = GraphProto {
            node: self.nodes,
            name: name.to_owned(),
            initializer: Vec::new(),
            input: self.inputs,
            output: self.outputs,
        };
        (graph, self.constants)
    }
}

impl Constant {
    pub(super) fn bytes(&self) -> u64 {
        let size = match self.dtype {
            DataType::Int64 => 8,
            DataType::Float | DataType::Int32 => 4,
            DataType::Undefined | DataType::Uint8 | DataType::Int8 | DataType::Bool => 1,
        };
        size * self.shape.iter().product::<usize>() as u64
    }

    /// The tensor without its values.
    pub(super) fn tensor(&self) -> TensorProto {
        TensorProto {
            dims: self.shape.iter().map(|&length| length as i64).collect(),
            data_type: self.dtype.into(),
            name: self.name.clone(),
            ..TensorProto::default()
        }
    }
}

fn described(name: &str, dtype: DataType, shape: &[Length]) -> ValueInfoProto {
    let length = |length: &Length| match *length {
        Length::Free(name) => DimensionProto { dim_param: Some(name.to_owned()), dim_value: None },
        Length::Fixed(n) => DimensionProto { dim_value: Some(n as i64), dim_param: None },
    };
    let shape = Some(TensorShapeProto { dim: shape.iter().map(length).collect() });
    let tensor_type = Some(TensorTypeProto { elem_type: dtype.into(), shape });
    ValueInfoProto { name: name.to_owned(), r#type: Some(TypeProto { tensor_type }) }
}
