// SPDX-License-Identifier: Apache-2.0
//! Credentials: kubeconfigs, certificates, tokens.

use std::error::Error;
use std::path::Path;

use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD, Engine};
use harvester_node_agent::access::token::{self, TokenKind, classify};
use harvester_node_agent::access::x509::Certificate;
use harvester_node_agent::access::{kubeconfig, pem};
use rustls::RootCertStore;
use rustls::pki_types::CertificateDer;
use secrecy::SecretString;
use serde_json::Value;
use x509_parser::extensions::{GeneralName, ParsedExtension};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::documents::yaml;
use super::{BASE, with_tree};
use crate::allocation::bounded;

/// Values of these keys are secrets.
const SECRET: [&str; 4] = [
    "token",
    "password",
    "client-key-data",
    "client-certificate-data",
];

/// The URL in an error for one that is invalid. A token may be a part of it.
const EXAMPLE: &str = "https://192.0.2.10:6443";

/// No error and no `Debug` holds a secret of the file.
pub fn kubeconfig(bytes: &[u8]) {
    let path = "/etc/kubernetes/cloud-config";
    let loaded = with_tree(&[(path, bytes)], |root| {
        bounded(bytes, 8 * BASE, || kubeconfig::load(root, Path::new(path)))
    });
    let mut said = format!("{loaded:?}");
    if let Err(error) = &loaded {
        said.push_str(&error.to_string());
        let mut cause = error.source();
        while let Some(error) = cause {
            said.push_str(&format!(" {error:?} {error}"));
            cause = error.source();
        }
    }
    let Ok(document) = yaml(bytes) else {
        return;
    };
    let mut texts = Vec::new();
    collect("", &document, &mut texts);
    for (key, text) in &texts {
        let is_elsewhere = texts
            .iter()
            .any(|(other, found)| other != key && found.contains(text.as_str()));
        if SECRET.contains(&key.as_str())
            && text.len() >= 12
            && !is_elsewhere
            && !EXAMPLE.contains(text.as_str())
            && occurrences(bytes, text) <= 1
        {
            assert!(!said.contains(text.as_str()), "{key} is told: {said}");
        }
    }
}

/// How often a text stands in a file.
fn occurrences(bytes: &[u8], text: &str) -> usize {
    bytes
        .windows(text.len())
        .filter(|window| *window == text.as_bytes())
        .count()
}

/// All texts of a document, each with its key; keys are texts, too.
fn collect(key: &str, value: &Value, texts: &mut Vec<(String, String)>) {
    match value {
        Value::String(text) => texts.push((key.to_owned(), text.clone())),
        Value::Array(items) => items.iter().for_each(|item| collect(key, item, texts)),
        Value::Object(entries) => {
            for (key, value) in entries {
                texts.push((String::new(), key.clone()));
                collect(key, value, texts);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The certificates of a PEM text, and whether it has a key.
fn sections(text: &[u8]) -> Result<(Vec<Vec<u8>>, bool), &'static str> {
    let contents = pem::read(text)?;
    let certificates = contents.certificates.iter();
    Ok((
        certificates.map(|der| der.to_vec()).collect(),
        contents.key.is_some(),
    ))
}

/// A certificate that `x509-parser` reads is read in the same way; PEM text that is written again is the same; of the certificates of an
/// authority, all are given to the TLS library if it can use one of them, and none otherwise.
pub fn x509_pem(bytes: &[u8]) {
    let ours = bounded(bytes, BASE, || Certificate::parse(bytes));
    if let Ok((rest, theirs)) = X509Certificate::from_der(bytes) {
        compare(ours.as_ref(), rest, &theirs);
    }
    let Ok((certificates, has_key)) = bounded(bytes, BASE, || sections(bytes)) else {
        return;
    };
    let pem: String = certificates
        .iter()
        .map(|der| {
            format!(
                "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
                BASE64_STANDARD.encode(der)
            )
        })
        .collect();
    if !certificates.is_empty() {
        let again = sections(pem.as_bytes()).unwrap();
        assert_eq!((&again.0, again.1), (&certificates, false), "{has_key}");
    }
    let usable = certificates.iter().any(|der| {
        let one = CertificateDer::from(der.as_slice());
        RootCertStore::empty().add(one).is_ok()
    });
    let trusted = pem::authorities(bytes).map_or(0, |all| all.len());
    assert_eq!(trusted, if usable { certificates.len() } else { 0 });
    for der in &certificates {
        if let Ok((rest, theirs)) = X509Certificate::from_der(der) {
            compare(Certificate::parse(der).as_ref(), rest, &theirs);
        }
    }
}

fn compare(ours: Option<&Certificate>, rest: &[u8], theirs: &X509Certificate<'_>) {
    let Some(ours) = ours else {
        return;
    };
    assert!(rest.is_empty(), "bytes behind a certificate");
    let validity = theirs.validity();
    assert_eq!(
        ours.not_before,
        validity.not_before.timestamp(),
        "not before"
    );
    assert_eq!(ours.not_after, validity.not_after.timestamp(), "not after");
    for (ours, theirs) in [
        (&ours.subject, theirs.subject()),
        (&ours.issuer, theirs.issuer()),
    ] {
        let names: Vec<Option<&str>> = theirs
            .iter_common_name()
            .map(|name| name.as_str().ok())
            .collect();
        let read: Vec<&str> = ours.common_names().collect();
        assert_eq!(read.len(), names.len(), "common names");
        for (read, name) in read.iter().zip(names) {
            assert!(
                name.is_none_or(|name| name == *read),
                "{name:?} is read as {read}"
            );
        }
    }
    let mut names = Vec::new();
    for extension in theirs.extensions() {
        if let ParsedExtension::SubjectAlternativeName(alternative) = extension.parsed_extension() {
            names.extend(
                alternative
                    .general_names
                    .iter()
                    .filter_map(|name| match name {
                        GeneralName::DNSName(name) => Some((*name).to_owned()),
                        _ => None,
                    }),
            );
        }
    }
    // Extensions that are not DER as it must be are passed over as a whole.
    let is_there = |name: &String| ours.alternative_names.contains(name);
    assert!(
        ours.alternative_names.is_empty() || names.iter().all(is_there),
        "{names:?} are not all in {:?}",
        ours.alternative_names
    );
}

/// What a token says of itself is what stands in it, and never a part of its secret.
pub fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    let secret = SecretString::from(text);
    let kind = bounded(bytes, BASE, || classify(&secret));
    if token::check(text).is_ok() {
        assert!(
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic()),
            "cannot be sent"
        );
    }
    match kind {
        TokenKind::Rancher { name } => {
            let (before, secret) = text.split_once(':').unwrap();
            assert!(name == before && !secret.is_empty());
        }
        TokenKind::Jwt(claims) => {
            let parts: Vec<&str> = text.split('.').collect();
            assert_eq!(parts.len(), 3, "parts of a token");
            let payload = BASE64_URL_SAFE_NO_PAD.decode(parts[1]).unwrap();
            // Of claims that nothing reads, a text may be half of a surrogate pair.
            let Ok(payload) = serde_json::from_slice::<Value>(&payload) else {
                return;
            };
            let claim = |name: &str| payload.get(name).and_then(Value::as_str).map(str::to_owned);
            for (read, name) in [(&claims.subject, "sub"), (&claims.issuer, "iss")] {
                assert!(read.is_none() || *read == claim(name), "{name}: {read:?}");
                let text = read.as_deref().unwrap_or_default();
                assert!(
                    text.len() <= 512 && !text.chars().any(char::is_control),
                    "{name}: {text:?}"
                );
            }
            if let Some(expires) = claims.expires {
                let said = payload.get("exp").and_then(Value::as_f64).unwrap();
                assert!(
                    (said - expires as f64).abs() <= 1.0 + said.abs() / 1e15 || said.abs() > 9e18,
                    "{said} is read as {expires}"
                );
            }
            if let Some(account) = claims.service_account {
                assert_eq!(
                    Some(format!("system:serviceaccount:{account}")),
                    claims.subject
                );
            }
        }
        TokenKind::Opaque => {}
    }
}
