//! Why a GGUF file cannot be read.

/// A GGUF file cannot be read.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum GgufError {
    /// The file does not begin with `GGUF`.
    #[error("it begins with {found:?}, wanted `GGUF`")]
    Magic {
        /// Its first bytes.
        found: [u8; 4],
    },
    /// Another version of the format.
    #[error("it is of version {found}, supported: 2 and 3, little-endian")]
    Version {
        /// The version.
        found: u32,
    },
    /// The file ends within its header, or something in the header is longer than the file.
    #[error("it is cut short: {what} wants {wanted} bytes at byte {at}, {found} are left")]
    Short {
        /// What was being read.
        what: String,
        /// Where.
        at: u64,
        /// Bytes wanted; the largest number where they cannot be counted.
        wanted: u64,
        /// Bytes that are left.
        found: u64,
    },
    /// A text or a list is longer than any that a model has.
    #[error("{what} has a length of {found}, at most {most} is read")]
    Long {
        /// Which.
        what: String,
        /// Its bytes or values.
        found: u64,
        /// Bytes or values that are read.
        most: u64,
    },
    /// A text is not UTF-8.
    #[error("{what} is not valid UTF-8")]
    Utf8 {
        /// What was being read.
        what: String,
    },
    /// A key or a tensor is there twice.
    #[error("{what} is there twice")]
    Twice {
        /// Which.
        what: String,
    },
    /// A setting has a type that no version of the format has, or a list of lists.
    #[error(
        "`{key}` has the value type {found}, which is not one of 0 to 12 or is a list of lists"
    )]
    ValueType {
        /// The key.
        key: String,
        /// The type's number.
        found: u32,
    },
    /// A setting that must be there is not.
    #[error("it has no `{key}`")]
    Missing {
        /// The key.
        key: String,
    },
    /// A setting has another kind of value.
    #[error("`{key}` should be {wanted}, found {found}")]
    Kind {
        /// The key.
        key: String,
        /// What may stand there.
        wanted: &'static str,
        /// What stands there, shortened.
        found: String,
    },
    /// The alignment is no power of two.
    #[error("`general.alignment` is {found}, wanted a power of two")]
    Alignment {
        /// The alignment.
        found: u64,
    },
    /// A tensor has no axis, or more than four.
    #[error("tensor `{tensor}` has {found} axes, wanted 1 to 4")]
    Axes {
        /// The tensor.
        tensor: String,
        /// Its number of axes.
        found: u32,
    },
    /// A tensor is quantised in a way that is not read here.
    #[error("tensor `{tensor}` has the element type {found}, supported: {supported}")]
    ElementType {
        /// The tensor.
        tensor: String,
        /// The type's number.
        found: u32,
        /// The types that are read.
        supported: &'static str,
    },
    /// The rows of a tensor do not consist of whole blocks, or its size overflows.
    #[error(
        "tensor `{tensor}` of shape {shape:?} does not consist of whole blocks of {block} elements"
    )]
    Blocks {
        /// The tensor.
        tensor: String,
        /// Its shape, outermost axis first.
        shape: Vec<usize>,
        /// Elements in a block.
        block: usize,
    },
    /// A tensor does not begin where one may, or overlaps another.
    #[error("tensor `{tensor}` begins at byte {offset} of the data: {reason}")]
    Offset {
        /// The tensor.
        tensor: String,
        /// Where it begins.
        offset: u64,
        /// Why it may not.
        reason: &'static str,
    },
}
