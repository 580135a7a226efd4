//! How one text is cut and padded, and what comes back.

/// Side from which tokens are removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TruncationSide {
    /// The start goes.
    Left,
    /// The end goes.
    #[default]
    Right,
}

/// Side to which padding is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PaddingSide {
    /// Padding before the text, as decoders want it.
    Left,
    /// Padding after the text, as encoders want it.
    #[default]
    Right,
}

/// Which text of a pair is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TruncationStrategy {
    /// The longer text is cut down to the shorter one, then both, the first keeping the smaller half of an odd rest
    /// if it was not the longer one.
    #[default]
    LongestFirst,
    /// Only the first text.
    OnlyFirst,
    /// Only the second text.
    OnlySecond,
}

impl TruncationStrategy {
    /// The spelling of configuration files.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LongestFirst => "longest_first",
            Self::OnlyFirst => "only_first",
            Self::OnlySecond => "only_second",
        }
    }
}

/// A limit on the length of one encoding.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Truncation {
    /// Most tokens, special ones included.
    pub max_length: usize,
    /// Which text is cut.
    pub strategy: TruncationStrategy,
}

impl Truncation {
    /// Cuts the longer text first.
    pub fn longest_first(max_length: usize) -> Self {
        Self { max_length, strategy: TruncationStrategy::LongestFirst }
    }
}

/// A length that encodings are filled up to; longer ones stay as they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PaddingSpec {
    /// The longest encoding of the batch.
    Longest,
    /// This many tokens.
    To(usize),
}

/// What to do with one text or one batch. The default neither truncates nor pads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct EncodeOptions {
    /// Limit on the length, if any.
    pub truncation: Option<Truncation>,
    /// Padding, if any.
    pub padding: Option<PaddingSpec>,
}

/// One text, or pair of texts, as tokens. All lists have the same length.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Encoding {
    /// Token ids.
    pub ids: Vec<u32>,
    /// 0 for the first text and its special tokens, 1 for the second; 0 at padding.
    pub type_ids: Vec<u32>,
    /// 1 for tokens, 0 for padding.
    pub attention_mask: Vec<u32>,
    /// The tokens as text; the input text for the unknown token.
    pub tokens: Vec<String>,
    /// First and one past the last character (not byte) in the text that the token comes from; (0, 0) at special
    /// tokens and padding.
    pub offsets: Vec<(usize, usize)>,
}

impl Encoding {
    /// Number of tokens, padding included.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// There are no tokens.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }
}
