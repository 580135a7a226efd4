//! The messages of an ONNX file, as far as an encoder needs them, and their order in the file.
//!
//! Names, field numbers and types are those of `onnx.proto` of ONNX 1.12, IR version 8
//! (<https://github.com/onnx/onnx/blob/v1.12.0/onnx/onnx.proto>). Tensors follow the graph one by one, so that memory holds one of
//! them at a time.

use std::io::Write;

use prost::Message as _;

use crate::error::Result;

/// Version of the file's own form.
pub(super) const IR_VERSION: i64 = 8;
/// Version of the operators: the first with `LayerNormalization`.
pub(super) const OPSET: i64 = 17;
/// A message has at most this many bytes.
pub(super) const MOST_BYTES: u64 = i32::MAX as u64;

/// Keys of `ModelProto.graph`, `GraphProto.initializer` and `TensorProto.raw_data`: field number times 8, and 2 for a length.
const GRAPH: u8 = 7 << 3 | 2;
const INITIALIZER: u8 = 5 << 3 | 2;
const RAW_DATA: u8 = 9 << 3 | 2;

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ModelProto {
    #[prost(int64, tag = "1")]
    pub ir_version: i64,
    #[prost(string, tag = "2")]
    pub producer_name: String,
    #[prost(string, tag = "3")]
    pub producer_version: String,
    #[prost(message, optional, tag = "7")]
    pub graph: Option<GraphProto>,
    #[prost(message, repeated, tag = "8")]
    pub opset_import: Vec<OperatorSetIdProto>,
    #[prost(message, repeated, tag = "14")]
    pub metadata_props: Vec<StringStringEntryProto>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct OperatorSetIdProto {
    #[prost(string, optional, tag = "1")]
    pub domain: Option<String>,
    #[prost(int64, tag = "2")]
    pub version: i64,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct StringStringEntryProto {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(string, tag = "2")]
    pub value: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct GraphProto {
    #[prost(message, repeated, tag = "1")]
    pub node: Vec<NodeProto>,
    #[prost(string, tag = "2")]
    pub name: String,
    #[prost(message, repeated, tag = "5")]
    pub initializer: Vec<TensorProto>,
    #[prost(message, repeated, tag = "11")]
    pub input: Vec<ValueInfoProto>,
    #[prost(message, repeated, tag = "12")]
    pub output: Vec<ValueInfoProto>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct NodeProto {
    #[prost(string, repeated, tag = "1")]
    pub input: Vec<String>,
    #[prost(string, repeated, tag = "2")]
    pub output: Vec<String>,
    #[prost(string, tag = "3")]
    pub name: String,
    #[prost(string, tag = "4")]
    pub op_type: String,
    #[prost(message, repeated, tag = "5")]
    pub attribute: Vec<AttributeProto>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct AttributeProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(float, optional, tag = "2")]
    pub f: Option<f32>,
    #[prost(int64, optional, tag = "3")]
    pub i: Option<i64>,
    #[prost(int64, repeated, packed = "false", tag = "8")]
    pub ints: Vec<i64>,
    #[prost(enumeration = "AttributeType", tag = "20")]
    pub r#type: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum AttributeType {
    Undefined = 0,
    Float = 1,
    Int = 2,
    Ints = 7,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorProto {
    #[prost(int64, repeated, packed = "false", tag = "1")]
    pub dims: Vec<i64>,
    #[prost(enumeration = "DataType", tag = "2")]
    pub data_type: i32,
    #[prost(string, tag = "8")]
    pub name: String,
    #[prost(bytes = "vec", optional, tag = "9")]
    pub raw_data: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "13")]
    pub external_data: Vec<StringStringEntryProto>,
    /// 1 if the values are in another file.
    #[prost(int32, optional, tag = "14")]
    pub data_location: Option<i32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub(super) enum DataType {
    Undefined = 0,
    Float = 1,
    Uint8 = 2,
    Int8 = 3,
    Int32 = 6,
    Int64 = 7,
    Bool = 9,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ValueInfoProto {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(message, optional, tag = "2")]
    pub r#type: Option<TypeProto>,
}

/// `TypeProto`, of whose kinds only the tensor is written.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TypeProto {
    #[prost(message, optional, tag = "1")]
    pub tensor_type: Option<TensorTypeProto>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorTypeProto {
    #[prost(enumeration = "DataType", tag = "1")]
    pub elem_type: i32,
    #[prost(message, optional, tag = "2")]
    pub shape: Option<TensorShapeProto>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct TensorShapeProto {
    #[prost(message, repeated, tag = "1")]
    pub dim: Vec<DimensionProto>,
}

/// A length, or the name of one that is free.
#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct DimensionProto {
    #[prost(int64, optional, tag = "1")]
    pub dim_value: Option<i64>,
    #[prost(string, optional, tag = "2")]
    pub dim_param: Option<String>,
}

/// A tensor without its values, and the number of their bytes.
pub(super) struct Head {
    pub tensor: TensorProto,
    pub bytes: u64,
}

impl Head {
    /// Bytes of the message.
    fn size(&self) -> u64 {
        let head = self.tensor.encoded_len() as u64;
        head + if self.is_external() { 0 } else { framed(self.bytes) }
    }

    fn is_external(&self) -> bool {
        self.tensor.data_location.is_some()
    }
}

/// Bytes of a field of so many bytes, with its key and its length.
fn framed(bytes: u64) -> u64 {
    1 + prost::length_delimiter_len(bytes as usize) as u64 + bytes
}

/// Bytes of a file of `model`, whose graph has no tensors, `graph` and `tensors`.
pub(super) fn file_size(model: &ModelProto, graph: &GraphProto, tensors: &[Head]) -> u64 {
    model.encoded_len() as u64 + framed(graph_size(graph, tensors))
}

fn graph_size(graph: &GraphProto, tensors: &[Head]) -> u64 {
    graph.encoded_len() as u64 + tensors.iter().map(|head| framed(head.size())).sum::<u64>()
}

/// Writes `model`, whose graph is `graph` with `tensors`; `values` gives the bytes of the tensor at a place in the list, and
/// `beside` takes those that are in another file.
pub(super) fn write(
    (model, graph): (&ModelProto, &GraphProto),
    tensors: &[Head],
    mut values: impl FnMut(usize) -> Result<Vec<u8>>,
    out: &mut impl Write,
    beside: &mut Option<impl Write>,
) -> Result<()> {
    let start = |out: &mut dyn Write, key: u8, bytes: u64| -> Result<()> {
        let mut frame = vec![key];
        prost::encode_length_delimiter(bytes as usize, &mut frame)?;
        Ok(out.write_all(&frame)?)
    };
    out.write_all(&model.encode_to_vec())?;
    start(out, GRAPH, graph_size(graph, tensors))?;
    out.write_all(&graph.encode_to_vec())?;
    for (at, head) in tensors.iter().enumerate() {
        start(out, INITIALIZER, head.size())?;
        out.write_all(&head.tensor.encode_to_vec())?;
        let bytes = values(at)?;
        if let (true, Some(beside)) = (head.is_external(), &mut *beside) {
            beside.write_all(&bytes)?;
        } else {
            start(out, RAW_DATA, head.bytes)?;
            out.write_all(&bytes)?;
        }
    }
    Ok(())
}
