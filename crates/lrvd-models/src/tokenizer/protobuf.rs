//! A protocol-buffer message, taken apart without its schema compiler.
//!
//! Only what SentencePiece files need: a cursor over the fields of one message. Every read is bounds-checked and
//! borrows from the input, so a hostile file costs neither a panic nor memory beyond itself.

/// The bytes are not a protocol-buffer message.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// A value reaches beyond the end of its message.
    #[error("byte {offset}: a value of {wanted} bytes starts here, but only {found} are left")]
    Truncated {
        /// Position in the file.
        offset: usize,
        /// Length of the value.
        wanted: u64,
        /// Bytes left in the message.
        found: usize,
    },
    /// A variable-length integer has more than 64 bits.
    #[error("byte {offset}: a variable-length integer is longer than 64 bits")]
    Varint {
        /// Position in the file.
        offset: usize,
    },
    /// A field has a number outside `1..2^29`.
    #[error("byte {offset}: field number {found} is outside 1..=536870911")]
    FieldNumber {
        /// Position in the file.
        offset: usize,
        /// The number.
        found: u64,
    },
    /// A field has a wire type that is not in use.
    #[error("byte {offset}: wire type {found} is not one of 0, 1, 2, 5")]
    WireType {
        /// Position in the file.
        offset: usize,
        /// The wire type.
        found: u8,
    },
}

/// Largest field number of the format.
const MAX_FIELD: u64 = (1 << 29) - 1;

/// The value of one field, as far as the wire format tells it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Value<'a> {
    /// Integers, booleans and enumerations.
    Varint(u64),
    /// Eight bytes; nothing that is read here uses them.
    Fixed64,
    /// Strings, byte strings and messages.
    Bytes(Message<'a>),
    /// Four bytes, little-endian: `float`.
    Fixed32(u32),
}

/// Some bytes of a file that know where they stand in it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Message<'a> {
    bytes: &'a [u8],
    /// Position of the first byte in the file, for error messages.
    offset: usize,
}

impl<'a> Message<'a> {
    /// The whole file.
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, offset: 0 }
    }

    /// The bytes themselves.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Position of the first byte in the file.
    pub(super) fn offset(&self) -> usize {
        self.offset
    }

    /// Cuts the next field off the front: its number and its value, or `None` at the end.
    pub(super) fn next_field(&mut self) -> Result<Option<(u32, Value<'a>)>, WireError> {
        if self.bytes.is_empty() {
            return Ok(None);
        }
        let offset = self.offset;
        let tag = self.varint()?;
        let number = tag >> 3;
        if number == 0 || number > MAX_FIELD {
            return Err(WireError::FieldNumber { offset, found: number });
        }
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => {
                self.take(8)?;
                Value::Fixed64
            }
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.take(length)?)
            }
            5 => {
                let word = self.take(4)?.bytes;
                let word = word.try_into().expect("`take(4)` returns 4 bytes");
                Value::Fixed32(u32::from_le_bytes(word))
            }
            found => return Err(WireError::WireType { offset, found: found as u8 }),
        };
        Ok(Some((number as u32, value)))
    }

    /// Cuts `length` bytes off the front.
    fn take(&mut self, length: u64) -> Result<Self, WireError> {
        let split = usize::try_from(length).ok().filter(|&n| n <= self.bytes.len());
        let Some(split) = split else {
            return Err(WireError::Truncated {
                offset: self.offset,
                wanted: length,
                found: self.bytes.len(),
            });
        };
        let (head, tail) = self.bytes.split_at(split);
        let taken = Self { bytes: head, offset: self.offset };
        self.bytes = tail;
        self.offset += split;
        Ok(taken)
    }

    /// Cuts a base-128 integer off the front: seven bits a byte, lowest first, the top bit says "go on".
    fn varint(&mut self) -> Result<u64, WireError> {
        let start = self.offset;
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.take(1)?.bytes[0];
            let bits = u64::from(byte & 0x7f);
            // The tenth byte has room for one bit only.
            if shift == 63 && bits > 1 {
                return Err(WireError::Varint { offset: start });
            }
            value |= bits << shift;
            if byte < 0x80 {
                return Ok(value);
            }
        }
        Err(WireError::Varint { offset: start })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn fields_of_each_wire_type_are_read() {
        // Field 1 varint 300, field 2 bytes "hi", field 3 fixed32 1.0, field 4 fixed64.
        let bytes = [
            0x08, 0xac, 0x02, 0x12, 0x02, b'h', b'i', 0x1d, 0, 0, 0x80, 0x3f, 0x21, 0, 0, 0, 0, 0,
            0, 0, 0,
        ];
        let mut message = Message::new(&bytes);
        assert_eq!(message.next_field().unwrap(), Some((1, Value::Varint(300))));
        let Some((2, Value::Bytes(text))) = message.next_field().unwrap() else { panic!() };
        assert_eq!((text.bytes(), text.offset()), (b"hi".as_slice(), 5));
        let one = Value::Fixed32(1.0f32.to_bits());
        assert_eq!(message.next_field().unwrap(), Some((3, one)));
        assert_eq!(message.next_field().unwrap(), Some((4, Value::Fixed64)));
        assert_eq!(message.next_field().unwrap(), None);
    }

    #[test]
    fn malformed_messages_are_refused() {
        let read = |bytes: &[u8]| Message::new(bytes).next_field().unwrap_err();
        assert_eq!(
            read(&[0x12, 0x05, b'a']),
            WireError::Truncated { offset: 2, wanted: 5, found: 1 }
        );
        assert_eq!(read(&[0x08]), WireError::Truncated { offset: 1, wanted: 1, found: 0 });
        assert_eq!(read(&[0x0b]), WireError::WireType { offset: 0, found: 3 });
        assert_eq!(read(&[0x00]), WireError::FieldNumber { offset: 0, found: 0 });
        let mut long = vec![0x08];
        long.extend([0xff; 10]);
        assert_eq!(read(&long), WireError::Varint { offset: 1 });
        // A length of 2^64 - 1 must not overflow the cursor.
        let mut huge = vec![0x12];
        huge.extend([0xff; 9]);
        huge.push(0x01);
        assert_eq!(read(&huge), WireError::Truncated { offset: 11, wanted: u64::MAX, found: 0 });
    }
}
