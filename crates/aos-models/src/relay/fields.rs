//! JSON objects and lists read one level at a time, as a server that nobody here knows might read them.
//!
//! Start at [`Fields`]. What always holds: two fields of one name are two; what lies deeper is not read.

use std::borrow::Cow;
use std::fmt;

use serde::de::{MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::value::RawValue;

use super::peek::Misfit;
use crate::wire::Text;

/// The fields of an object in their order, those of one name too. Their values are not read: a text with half a character in
/// it is the server's to judge.
#[derive(Default)]
pub(super) struct Fields<'a>(pub(super) Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'de: 'a, 'a> Deserialize<'de> for Fields<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Each;

        impl<'de> Visitor<'de> for Each {
            type Value = Fields<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Fields<'de>, A::Error> {
                let mut fields = Vec::new();
                while let Some((Text(name), value)) = map.next_entry()? {
                    fields.push((name, value));
                }
                Ok(Fields(fields))
            }
        }

        from.deserialize_map(Each)
    }
}

/// What a text says; `None` where it is none, or holds half a character.
pub(super) fn text(value: &RawValue) -> Option<Cow<'_, str>> {
    serde_json::from_str::<Text<'_>>(value.get()).ok().map(|text| text.0)
}

/// Sees the parts of a list one by one, since there may be millions; none where it is no list, which is the server's to
/// refuse.
pub(super) fn each_of<'a>(
    list: &'a RawValue,
    see: impl FnMut(&'a RawValue) -> Result<(), Misfit>,
) -> Result<(), Misfit> {
    struct Each<F>(F);

    impl<'de, F: FnMut(&'de RawValue) -> Result<(), Misfit>> Visitor<'de> for Each<F> {
        type Value = Result<(), Misfit>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a list")
        }

        fn visit_seq<A: SeqAccess<'de>>(mut self, mut parts: A) -> Result<Self::Value, A::Error> {
            let mut seen = Ok(());
            while let Some(part) = parts.next_element()? {
                // Read to its end all the same.
                if seen.is_ok() {
                    seen = (self.0)(part);
                }
            }
            Ok(seen)
        }
    }

    if !list.get().starts_with('[') {
        return Ok(());
    }
    serde_json::Deserializer::from_str(list.get()).deserialize_seq(Each(see))?
}
