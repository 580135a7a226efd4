//! JSON schemas of what settings files hold: the types here derive theirs, the definitions in `lrvd_core` cannot.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Deserializer;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Error as _, Visitor};

/// The schema of an enumeration without data, for `schema_with`: the words that `T` is read from.
///
/// The definitions know serde and nothing of schemas, so it is their `Deserialize` that is asked.
pub fn words<T: DeserializeOwned>(_: &mut SchemaGenerator) -> Schema {
    let mut asked = Words(&[]);
    // It has the words once it has been asked, and no value to give.
    let _ = T::deserialize(&mut asked);
    json_schema!({ "type": "string", "enum": asked.0 })
}

struct Words(&'static [&'static str]);

impl<'de> Deserializer<'de> for &mut Words {
    type Error = Error;

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Error> {
        self.0 = words;
        Err(Error::custom("there is no value"))
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Error> {
        Err(Error::custom("not an enumeration"))
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 u8 u16 u32 u64 f32 f64 char str string bytes byte_buf option unit unit_struct newtype_struct
        seq tuple tuple_struct map struct identifier ignored_any
    }
}
