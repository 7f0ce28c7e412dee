// SPDX-License-Identifier: Apache-2.0
//! Reads certificates and private keys from PEM text.

use rustls::RootCertStore;
use rustls::pki_types::pem::{Error, PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use zeroize::Zeroizing;

use crate::access::x509::Certificate;

const NO_CERTIFICATE: &str = "has no certificate in PEM format";
const BROKEN_CERTIFICATE: &str = "has no certificate that can be parsed";
const ENCRYPTED_KEY: &str = "has an encrypted private key, which is not supported";

/// The content of a PEM text; all other sections are skipped.
#[derive(Debug, Default)]
pub struct Contents {
    /// In the order of the text.
    pub certificates: Vec<CertificateDer<'static>>,
    /// The first private key.
    pub key: Option<Zeroizing<PrivateKeyDer<'static>>>,
}

/// Reads a PEM text. Fails if a section has no end, since the file is then half-written. No error quotes the text.
pub fn read(text: &[u8]) -> Result<Contents, &'static str> {
    if text.trim_ascii().is_empty() {
        return Err("is empty");
    }
    let mut contents = Contents::default();
    for section in <(SectionKind, Vec<u8>)>::pem_slice_iter(text) {
        let (kind, der) = section.map_err(|error| problem(text, &error))?;
        match kind {
            SectionKind::Certificate => contents.certificates.push(der.into()),
            SectionKind::PrivateKey | SectionKind::RsaPrivateKey | SectionKind::EcPrivateKey => {
                let der = Zeroizing::new(der);
                if contents.key.is_none() {
                    contents.key = PrivateKeyDer::from_pem(kind, der.to_vec()).map(Zeroizing::new);
                }
            }
            _ => {}
        }
    }
    Ok(contents)
}

/// Reads the certificates of an authority. At least one must be usable. The TLS library skips the others, as Kubernetes' own clients
/// do; only that library decides, because it may accept one that we cannot parse.
pub fn authorities(text: &[u8]) -> Result<Vec<CertificateDer<'static>>, &'static str> {
    let found = read(text)?.certificates;
    if found.is_empty() {
        return Err(NO_CERTIFICATE);
    }
    let (usable, _) = RootCertStore::empty().add_parsable_certificates(found.iter().cloned());
    if usable == 0 {
        return Err(BROKEN_CERTIFICATE);
    }
    Ok(found)
}

/// Reads the chain of a client, leaf first, and the private key if one is in the same text.
pub(super) fn client(text: &[u8]) -> Result<Contents, &'static str> {
    let contents = read(text)?;
    let leaf = contents.certificates.first().ok_or(NO_CERTIFICATE)?;
    if Certificate::parse(leaf).is_none() {
        return Err(BROKEN_CERTIFICATE);
    }
    Ok(contents)
}

/// Reads a private key.
pub(super) fn private_key(text: &[u8]) -> Result<Zeroizing<PrivateKeyDer<'static>>, &'static str> {
    read(text)?.key.ok_or_else(|| match is_encrypted(text) {
        true => ENCRYPTED_KEY,
        false => "has no private key in PEM format",
    })
}

fn problem(text: &[u8], error: &Error) -> &'static str {
    match error {
        Error::MissingSectionEnd { .. } => "is truncated: a PEM section has no END line",
        Error::IllegalSectionStart { .. } => "has an invalid PEM header line, or is truncated",
        // The old format of an encrypted key has headers within the section.
        _ if is_encrypted(text) => ENCRYPTED_KEY,
        _ => "has a PEM section that is not base64",
    }
}

fn is_encrypted(text: &[u8]) -> bool {
    text.windows(9).any(|window| window == b"ENCRYPTED")
}

#[cfg(test)]
mod tests {
    use base64::prelude::{BASE64_STANDARD, Engine};

    use super::*;
    use crate::access::testing::Authority;

    /// RFC 5280 requires the seconds of a time; the TLS library does not read the validity of an authority.
    #[test]
    fn an_authority_that_only_we_cannot_parse_is_trusted() {
        let (odd, good) = (Authority::new("odd"), Authority::new("good"));
        let mut der = odd.der().to_vec();
        let time = b"240101000000Z";
        let at = der
            .windows(time.len())
            .position(|part| part == time)
            .unwrap();
        der[at..at + time.len()].copy_from_slice(b"2401010000  Z");
        assert_eq!(Certificate::parse(&der), None);
        let encoded = BASE64_STANDARD.encode(&der);
        let text = format!("-----BEGIN CERTIFICATE-----\n{encoded}\n-----END CERTIFICATE-----\n");
        assert_eq!(authorities(text.as_bytes()).unwrap().len(), 1);
        let both = format!("{text}{}", good.pem());
        assert_eq!(authorities(both.as_bytes()).unwrap().len(), 2);
        let none = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
        assert_eq!(authorities(none.as_bytes()), Err(BROKEN_CERTIFICATE));
    }
}
