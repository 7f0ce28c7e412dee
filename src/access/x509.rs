// SPDX-License-Identifier: Apache-2.0
//! Parses the fields of a certificate that messages and checks use (RFC 5280, section 4.1): subject, issuer, validity
//! and alternative names. It verifies nothing: the TLS library does that.

use std::fmt;
use std::net::IpAddr;

use der::asn1::{AnyRef, GeneralizedTime, ObjectIdentifier, UtcTime};
use der::{Decode, Tag, TagNumber, Tagged};

/// `id-at-commonName` (RFC 4519, 2.3).
const COMMON_NAME: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.3");

/// `id-at-organizationName` (RFC 4519, 2.19).
const ORGANIZATION: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.4.10");

/// `id-ce-subjectAltName` (RFC 5280, 4.2.1.6).
const ALTERNATIVE_NAMES: ObjectIdentifier = ObjectIdentifier::new_unwrap("2.5.29.17");

/// The maximum number of alternative names, and of attributes of a name; a real certificate has some dozens. One of two bytes takes
/// twenty-four in memory, and the certificate of a server is parsed before it is trusted.
const ENTRIES_MAX: usize = 1000;

/// The parsed fields of a certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    /// The name of the issuer.
    pub issuer: DistinguishedName,
    /// The name of the subject.
    pub subject: DistinguishedName,
    /// The first second of its validity, since 1970.
    pub not_before: i64,
    /// The last second of its validity, since 1970.
    pub not_after: i64,
    /// The DNS names and IP addresses that it is valid for (`subjectAltName`), as text.
    pub alternative_names: Vec<String>,
}

impl Certificate {
    /// Parses a certificate in DER. Returns `None` if it is not one, or truncated.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        let mut certificate = elements(AnyRef::from_der(bytes).ok()?, Tag::Sequence)?;
        let mut fields = elements(certificate.next()??, Tag::Sequence)?;
        // The signature.
        certificate.try_for_each(|part| part.map(drop))?;
        if fields.next()??.tag() == context(true, 0) {
            let _serial_number = fields.next()??;
        }
        let _signature_algorithm = fields.next()??;
        let issuer = name(fields.next()??)?;
        let mut validity = elements(fields.next()??, Tag::Sequence)?;
        let (not_before, not_after) = (time(validity.next()??)?, time(validity.next()??)?);
        let subject = name(fields.next()??)?;
        // Of the fields after the subject only the alternative names are read.
        let mut alternative_names = Vec::new();
        for field in fields {
            let field = field?;
            if field.tag() == context(true, 3) {
                // They are only for messages: a certificate with invalid ones is still a certificate.
                alternative_names = names_in(field).unwrap_or_default();
            }
        }
        Some(Self {
            issuer,
            subject,
            not_before,
            not_after,
            alternative_names,
        })
    }
}

/// Returns the elements of a value with this tag; `None` in place of the first that is no DER.
fn elements<'a>(value: AnyRef<'a>, tag: Tag) -> Option<impl Iterator<Item = Option<AnyRef<'a>>>> {
    value.tag().assert_eq(tag).ok()?;
    let mut rest = value.value();
    Some(std::iter::from_fn(move || {
        let next = (!rest.is_empty()).then(|| AnyRef::from_der_partial(rest).ok())?;
        let (element, after) = next.unzip();
        rest = after.unwrap_or_default();
        Some(element)
    }))
}

/// A distinguished name: the type and value of each attribute, in the order of the certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DistinguishedName(Vec<(ObjectIdentifier, String)>);

impl DistinguishedName {
    /// Returns the values of all common names.
    pub fn common_names(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.values(COMMON_NAME)
    }

    /// Returns the values of all organizations.
    pub fn organizations(&self) -> impl DoubleEndedIterator<Item = &str> {
        self.values(ORGANIZATION)
    }

    fn values(&self, kind: ObjectIdentifier) -> impl DoubleEndedIterator<Item = &str> {
        let of_kind = move |part: &&(ObjectIdentifier, String)| part.0 == kind;
        self.0.iter().filter(of_kind).map(|part| part.1.as_str())
    }
}

/// Writes `CN=…, O=…`; any other type is written as its OID. The values are untrusted text, not escaped.
impl fmt::Display for DistinguishedName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, (kind, value)) in self.0.iter().enumerate() {
            if position > 0 {
                formatter.write_str(", ")?;
            }
            match *kind {
                COMMON_NAME => formatter.write_str("CN")?,
                ORGANIZATION => formatter.write_str("O")?,
                other => write!(formatter, "{other}")?,
            }
            write!(formatter, "={value}")?;
        }
        Ok(())
    }
}

/// Parses `Extensions`: a sequence of sequences of type, criticality, and value in separate DER.
fn names_in(extensions: AnyRef<'_>) -> Option<Vec<String>> {
    let extensions = elements(extensions, context(true, 3))?.next()??;
    let mut names = Vec::new();
    for extension in elements(extensions, Tag::Sequence)? {
        let mut parts = elements(extension?, Tag::Sequence)?;
        let (kind, value) = (parts.next()??, parts.last()??);
        if kind.decode_as::<ObjectIdentifier>().ok()? == ALTERNATIVE_NAMES {
            let value = elements(value, Tag::OctetString)?.next()??;
            add_general_names(value, &mut names)?;
        }
    }
    Some(names)
}

/// Parses `GeneralNames`: the names by which a server can be reached.
fn add_general_names(value: AnyRef<'_>, names: &mut Vec<String>) -> Option<()> {
    for name in elements(value, Tag::Sequence)? {
        // A constructed string is not DER.
        let is_valid = |name: &AnyRef<'_>| name.tag() != context(true, 2);
        let name = name.filter(|name| names.len() < ENTRIES_MAX && is_valid(name))?;
        if name.tag() == context(false, 2) {
            names.push(String::from_utf8_lossy(name.value()).into_owned());
        } else if name.tag() == context(false, 7) {
            names.extend(address(name.value()));
        }
    }
    Some(())
}

fn address(bytes: &[u8]) -> Option<String> {
    let four = <[u8; 4]>::try_from(bytes).map(IpAddr::from);
    let address = four.or_else(|_| <[u8; 16]>::try_from(bytes).map(IpAddr::from));
    Some(address.ok()?.to_string())
}

fn context(constructed: bool, number: u32) -> Tag {
    Tag::ContextSpecific {
        constructed,
        number: TagNumber(number),
    }
}

/// Parses an `RDNSequence`: a sequence of sets of type and value.
fn name(value: AnyRef<'_>) -> Option<DistinguishedName> {
    let mut parts = Vec::new();
    for set in elements(value, Tag::Sequence)? {
        for part in elements(set?, Tag::Set)? {
            let part = part.filter(|_| parts.len() < ENTRIES_MAX)?;
            let mut part = elements(part, Tag::Sequence)?;
            let (kind, value) = (part.next()??, part.next()??);
            parts.push((kind.decode_as().ok()?, text(value)));
        }
    }
    Some(DistinguishedName(parts))
}

/// Converts a value of any of the string types to text. Any other value becomes readable text too.
fn text(value: AnyRef<'_>) -> String {
    if value.tag() == Tag::BmpString {
        let units = value.value().chunks_exact(2);
        let units = units.map(|unit| {
            unit.iter()
                .fold(0, |unit, byte| unit << 8 | u16::from(*byte))
        });
        return char::decode_utf16(units)
            .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect();
    }
    String::from_utf8_lossy(value.value()).into_owned()
}

fn time(value: AnyRef<'_>) -> Option<i64> {
    let utc = value
        .decode_as::<UtcTime>()
        .map(|time| time.to_unix_duration());
    let general = |_| {
        value
            .decode_as::<GeneralizedTime>()
            .map(|time| time.to_unix_duration())
    };
    i64::try_from(utc.or_else(general).ok()?.as_secs()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::{Authority, NOT_AFTER, NOT_BEFORE};

    #[test]
    fn names_and_life_are_read() {
        let authority = Authority::new("guest-ca");
        let client = authority.client("system:node:a", "system:nodes");
        let read = Certificate::parse(&client.der).unwrap();
        assert_eq!(read.issuer.to_string(), "CN=guest-ca");
        let mut parts: Vec<String> = read
            .subject
            .to_string()
            .split(", ")
            .map(str::to_owned)
            .collect();
        parts.sort();
        assert_eq!(parts, ["CN=system:node:a", "O=system:nodes"]);
        assert_eq!((read.not_before, read.not_after), (NOT_BEFORE, NOT_AFTER));
    }

    #[test]
    fn the_names_that_a_server_can_be_reached_by_are_read() {
        let names = [
            "harvester.example",
            "*.apps.example",
            "192.0.2.10",
            "fd00::10",
        ];
        let key = rcgen::KeyPair::generate().unwrap();
        let params = rcgen::CertificateParams::new(names.map(str::to_owned)).unwrap();
        let certificate = params.self_signed(&key).unwrap();
        let read = Certificate::parse(certificate.der()).unwrap();
        assert_eq!(read.alternative_names, names);
        let authority = Certificate::parse(&Authority::new("a").der()).unwrap();
        assert_eq!(authority.alternative_names, [""; 0]);
    }

    #[test]
    fn every_cut_and_every_appended_byte_is_malformed() {
        let whole = Authority::new("guest-ca").der();
        Certificate::parse(&whole).unwrap();
        for end in 0..whole.len() {
            assert_eq!(Certificate::parse(&whole[..end]), None, "{end}");
        }
        assert_eq!(Certificate::parse(&[&whole[..], &[0]].concat()), None);
    }

    #[test]
    fn a_flipped_byte_is_never_a_panic_and_in_a_name_never_unseen() {
        let name = b"guest-ca";
        let whole = Authority::new("guest-ca").der().to_vec();
        let read = Certificate::parse(&whole).unwrap();
        // The issuer and the subject.
        let names: Vec<usize> = (0..whole.len())
            .filter(|&start| whole[start..].starts_with(name))
            .collect();
        assert_eq!(names.len(), 2);
        for position in 0..whole.len() {
            let in_name = names
                .iter()
                .any(|&start| (start..start + name.len()).contains(&position));
            for flip in [0x01, 0x20, 0x80, 0xFF] {
                let mut bytes = whole.clone();
                bytes[position] ^= flip;
                let flipped = Certificate::parse(&bytes);
                assert!(
                    !in_name || flipped.as_ref() != Some(&read),
                    "{position}: {flip:#x}"
                );
                // The tag of the outer sequence and its length.
                assert!(position >= 4 || flipped.is_none(), "{position}");
            }
        }
    }

    #[test]
    fn too_many_names_or_attributes_are_malformed() {
        let long = |tag: u8, content: &[u8]| {
            let length = u16::try_from(content.len()).unwrap().to_be_bytes();
            [&[tag, 0x82], &length[..], content].concat()
        };
        let attribute = [0x30, 7, 6, 3, 0x55, 4, 3, 0x0C, 0];
        let set = [&[0x31, 9], &attribute[..]].concat();
        for (count, is_read) in [(ENTRIES_MAX, true), (ENTRIES_MAX + 1, false)] {
            let names = long(0x30, &[0x82, 0].repeat(count));
            let read = add_general_names(AnyRef::from_der(&names).unwrap(), &mut Vec::new());
            assert_eq!(read.is_some(), is_read, "alternative names: {count}");
            for sets in [set.repeat(count), long(0x31, &attribute.repeat(count))] {
                let der = long(0x30, &sets);
                let read = name(AnyRef::from_der(&der).unwrap());
                assert_eq!(read.is_some(), is_read, "attributes: {count}");
            }
        }
    }

    #[test]
    fn values_of_every_string_type_are_text() {
        let value = |tag: u8, bytes: &[u8]| {
            let length = u8::try_from(bytes.len()).unwrap();
            let der = [&[tag, length], bytes].concat();
            text(AnyRef::from_der(&der).unwrap())
        };
        assert_eq!(value(0x0C, "é".as_bytes()), "é");
        assert_eq!(value(0x13, b"north"), "north");
        assert_eq!(value(0x1E, &[0x00, 0x41, 0x26, 0x3A]), "A☺");
        assert_eq!(value(0x1E, &[0xD8, 0x00]), "\u{FFFD}");
        assert_eq!(value(0x14, &[0xFF]), "\u{FFFD}");
    }
}
