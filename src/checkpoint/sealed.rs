//! JSON objects that hold a checksum of themselves, so that a damaged one is refused instead of believed.

use serde_json::Value;

/// Field that holds the checksum of the others.
const CHECKSUM: &str = "crc32";

/// Why the content of an object is not what was sealed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Broken {
    /// It has no checksum.
    Open,
    /// It has another one than its content.
    Damaged,
}

/// The object `body` with its checksum.
pub(crate) fn seal(mut body: Value) -> Value {
    body[CHECKSUM] = checksum(&body);
    body
}

/// The object that was sealed.
pub(crate) fn unseal(mut sealed: Value) -> Result<Value, Broken> {
    let recorded = sealed.as_object_mut().and_then(|fields| fields.remove(CHECKSUM)).ok_or(Broken::Open)?;
    if recorded == checksum(&sealed) { Ok(sealed) } else { Err(Broken::Damaged) }
}

/// CRC-32 of the compact text of `body`: independent of white space, and the same after parsing, since numbers
/// round-trip.
fn checksum(body: &Value) -> Value {
    Value::String(format!("{:08x}", crc32fast::hash(body.to_string().as_bytes())))
}
