//! JSON schemas of settings that are types of `lrvd_core`, which cannot derive them.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde::Deserializer;
use serde::de::value::Error;
use serde::de::{DeserializeOwned, Error as _, Visitor};

/// Names of the variants of an enumeration, from its `Deserialize`; of another type none.
pub fn names<T: DeserializeOwned>() -> &'static [&'static str] {
    let mut names = Words(&[]);
    // The deserialiser stores the names and returns an error.
    let _ = T::deserialize(&mut names);
    names.0
}

/// Schema of an enumeration without data, for `schema_with`: its [`names`].
pub fn words<T: DeserializeOwned>(_: &mut SchemaGenerator) -> Schema {
    json_schema!({ "type": "string", "enum": names::<T>() })
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
