// SPDX-License-Identifier: Apache-2.0
//! Reads the claims of a bearer token. They are neither verified nor trusted: they are only for messages.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine};
use secrecy::{ExposeSecret, SecretString};
use serde_json::{Map, Value};
use zeroize::Zeroizing;

use crate::facts::clock::date;
use crate::facts::names::{Namespace, SecretName, ServiceAccount, TokenSecret};

/// The maximum size of a token: API servers accept at most 64 KiB of headers, and tokens are below 4 KiB.
pub(super) const TOKEN_MAX: u64 = 32 << 10;

/// The maximum number of characters of a claim that is kept; longer ones are not names.
const CLAIM_MAX: usize = 512;

/// The lengths in bytes of RSA keys of 3000, 4000 and so on bits. A key of 2000 bits is no longer in use, and its length would be that of
/// a truncated signature.
const RSA_3000: [usize; 6] = [375, 500, 625, 750, 875, 1000];

pub(super) const NOT_A_TOKEN: &str = "contains a space or a character that is not ASCII";

/// The kinds of bearer token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TokenKind {
    /// A Rancher token, which only Rancher's own proxy accepts and which may expire at any time.
    Rancher {
        /// The name of the token object, which is not secret.
        name: String,
    },
    /// A JSON Web Token, such as that of a ServiceAccount.
    Jwt(Claims),
    /// Any other.
    Opaque,
}

/// The claims of a JSON Web Token that are used in messages.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Claims {
    /// `sub`: the user name.
    pub subject: Option<String>,
    /// The ServiceAccount, if `sub` names one.
    pub service_account: Option<ServiceAccount>,
    /// The Secret, which only tokens without expiry name.
    pub secret: Option<TokenSecret>,
    /// `iss`.
    pub issuer: Option<String>,
    /// `iat`, in seconds since 1970; the tokens that Harvester makes have none.
    pub issued: Option<i64>,
    /// `exp`, in seconds since 1970; the tokens that Harvester makes have none.
    pub expires: Option<i64>,
}

/// Returns the kind of a token.
pub fn classify(token: &SecretString) -> TokenKind {
    let token = token.expose_secret();
    if token.len() as u64 > TOKEN_MAX {
        return TokenKind::Opaque;
    }
    if let Some(name) = rancher_name(token) {
        return TokenKind::Rancher { name };
    }
    let mut parts = token.split('.');
    match (parts.next(), parts.next(), parts.next(), parts.next()) {
        (Some(header), Some(payload), Some(_), None) => decode(header)
            .and_then(|_| decode(payload))
            .map_or(TokenKind::Opaque, |raw| TokenKind::Jwt(claims(&raw))),
        _ => TokenKind::Opaque,
    }
}

/// Checks that a text can be sent as a bearer token, and is complete as far as can be determined. The error does not quote it.
pub fn check(token: &str) -> Result<(), &'static str> {
    if token.is_empty() {
        Err("is empty")
    } else if token.len() as u64 > TOKEN_MAX {
        Err("is too large for a token")
    } else if token.chars().any(char::is_control) {
        Err("contains a control character or a line break")
    } else if !token.bytes().all(|byte| byte.is_ascii_graphic()) {
        Err(NOT_A_TOKEN)
    } else if is_cut_short(token) {
        Err("is a truncated JSON Web Token")
    } else {
        Ok(())
    }
}

/// Returns the service account of a token that can be sent and has not expired. Each such token names it, with its namespace.
pub fn account(token: &str, now: i64) -> Result<ServiceAccount, String> {
    check(token)?;
    let claims = match classify(&token.into()) {
        TokenKind::Jwt(claims) => claims,
        _ => Claims::default(),
    };
    if let Some(end) = claims.expires.filter(|end| *end <= now) {
        let end = date(end);
        return Err(format!("has expired at {end}, by the clock of this node"));
    }
    let account = claims.service_account;
    account.ok_or_else(|| "is not a token of a service account".to_owned())
}

/// Reports whether the text is only the start of a JSON Web Token. A kubeconfig that is written in place briefly ends within its
/// token, and is valid YAML at that time.
fn is_cut_short(token: &str) -> bool {
    // `{"` in base64, the start of every such token.
    if !token.starts_with("eyJ") {
        return "eyJ".starts_with(token);
    }
    let parts: Vec<&str> = token.split('.').collect();
    let [header, _, signature] = parts.as_slice() else {
        return parts.len() < 3;
    };
    let header = decode(header).unwrap_or_default();
    let Some(alg) = header.get("alg").and_then(Value::as_str) else {
        return false;
    };
    let length = BASE64_URL_SAFE_NO_PAD
        .decode(signature)
        .map_or(0, |bytes| bytes.len());
    match alg {
        // A signature is as long as its RSA key. Most keys have a multiple of 512 bits, some one of 1000, such as 3000.
        "RS256" | "RS384" | "RS512" | "PS256" | "PS384" | "PS512" => {
            length < 128 || !(length.is_multiple_of(64) || RSA_3000.contains(&length))
        }
        // Ed25519 and Ed448.
        "EdDSA" => ![64, 114].contains(&length),
        "ES256" | "HS512" => length != 64,
        "ES384" => length != 96,
        "ES512" => length != 132,
        "HS256" => length != 32,
        "HS384" => length != 48,
        _ => false,
    }
}

/// Returns the name in `token-xxxxx:secret` and `kubeconfig-u-xxxxx:secret`.
fn rancher_name(token: &str) -> Option<String> {
    let (name, secret) = token.split_once(':')?;
    let is_name = name.len() <= 63
        && name
            .bytes()
            .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let is_rancher = name.starts_with("token-") || name.starts_with("kubeconfig-");
    (is_name && is_rancher && !secret.is_empty()).then(|| name.to_owned())
}

fn decode(part: &str) -> Option<Map<String, Value>> {
    let bytes = Zeroizing::new(BASE64_URL_SAFE_NO_PAD.decode(part).ok()?);
    serde_json::from_slice(&bytes).ok()
}

fn claims(raw: &Map<String, Value>) -> Claims {
    let subject = raw.get("sub").and_then(text);
    Claims {
        service_account: subject.as_deref().and_then(ServiceAccount::of_user),
        subject,
        secret: secret(raw),
        issuer: raw.get("iss").and_then(text),
        issued: raw.get("iat").and_then(seconds),
        expires: raw.get("exp").and_then(seconds),
    }
}

/// The Secret of a token that its controller made (`pkg/serviceaccount/legacy.go` of Kubernetes).
fn secret(raw: &Map<String, Value>) -> Option<TokenSecret> {
    let claim = |name: &str| raw.get(name)?.as_str();
    Some(TokenSecret {
        namespace: Namespace::parse(claim("kubernetes.io/serviceaccount/namespace")?).ok()?,
        name: SecretName::parse(claim("kubernetes.io/serviceaccount/secret.name")?).ok()?,
    })
}

fn text(claim: &Value) -> Option<String> {
    let text = claim.as_str()?;
    (text.len() <= CLAIM_MAX && !text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// Parses a time. `exp` may have a fraction (RFC 7519, `NumericDate`).
fn seconds(claim: &Value) -> Option<i64> {
    #[expect(
        clippy::cast_possible_truncation,
        reason = "`as` saturates, and a date that far away is as good as any other"
    )]
    claim
        .as_i64()
        .or_else(|| claim.as_f64().map(|seconds| seconds as i64))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::testing::jwt;

    fn kind(token: &str) -> TokenKind {
        classify(&SecretString::from(token))
    }

    #[test]
    fn a_service_account_is_read_from_its_token() {
        let token = jwt(
            r#"{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:default:gc8","exp":1700000000.5}"#,
        );
        let TokenKind::Jwt(claims) = kind(&token) else {
            panic!("no JSON Web Token");
        };
        assert_eq!(claims.issuer.as_deref(), Some("kubernetes/serviceaccount"));
        assert_eq!(claims.expires, Some(1_700_000_000));
        let account = claims.service_account.unwrap();
        assert_eq!(account.to_string(), "default:gc8");
        assert_eq!(claims.secret, None);
        let legacy = jwt(
            r#"{"kubernetes.io/serviceaccount/namespace":"default","kubernetes.io/serviceaccount/secret.name":"gc8-token"}"#,
        );
        let TokenKind::Jwt(claims) = kind(&legacy) else {
            panic!("no JSON Web Token");
        };
        let secret = claims.secret.unwrap();
        assert_eq!(
            (secret.namespace.as_str(), secret.name.as_str()),
            ("default", "gc8-token")
        );
    }

    #[test]
    fn claims_of_the_wrong_kind_are_left_out() {
        let odd = jwt(r#"{"sub":["a"],"iss":"a\nb","exp":"soon"}"#);
        assert_eq!(kind(&odd), TokenKind::Jwt(Claims::default()));
        let human = jwt(r#"{"sub":"system:serviceaccount:only-one","exp":1e300}"#);
        let TokenKind::Jwt(claims) = kind(&human) else {
            panic!("no JSON Web Token");
        };
        assert_eq!(claims.service_account, None);
        assert_eq!(claims.expires, Some(i64::MAX));
    }

    #[test]
    fn rancher_tokens_are_recognized_by_their_name() {
        for name in ["token-abcde", "kubeconfig-u-x7k2p"] {
            let expected = TokenKind::Rancher {
                name: name.to_owned(),
            };
            assert_eq!(kind(&format!("{name}:CANARY")), expected);
        }
    }

    #[test]
    fn everything_else_is_opaque() {
        for token in [
            "",
            ".",
            "..",
            "a.b.c",
            "eyJ.eyJ.x",
            "token-abcde:",
            "token-UPPER:x",
            ":",
            "\0\u{fffd}.é.\n",
            &"a.".repeat(100_000),
            &format!("{}.bm90IGpzb24.AA", "eyJhbGciOiJub25lIn0"),
        ] {
            assert_eq!(kind(token), TokenKind::Opaque);
        }
    }

    #[test]
    fn every_beginning_of_a_json_web_token_is_seen_as_one() {
        let token = jwt(r#"{"sub":"system:serviceaccount:default:gc8"}"#);
        assert_eq!(check(&token), Ok(()));
        let signature = token.rfind('.').unwrap();
        for end in 1..token.len() {
            let length = (end.saturating_sub(signature + 1)) * 6 / 8;
            // A text cut at the signature length of a shorter key cannot be recognized as truncated.
            if ![128, 192].contains(&length) {
                assert_eq!(
                    check(&token[..end]),
                    Err("is a truncated JSON Web Token"),
                    "{end}"
                );
            }
        }
    }

    #[test]
    fn a_token_with_a_key_of_an_unusual_length_is_whole() {
        let signed = |algorithm: &str, length: usize| {
            let header = format!(r#"{{"alg":"{algorithm}"}}"#);
            let encode = |bytes: &[u8]| BASE64_URL_SAFE_NO_PAD.encode(bytes);
            let signature = encode(&vec![0x5a; length]);
            format!(
                "{}.{}.{signature}",
                encode(header.as_bytes()),
                encode(b"{}")
            )
        };
        for (algorithm, length) in [
            ("RS256", 375),
            ("PS512", 500),
            ("EdDSA", 64),
            ("EdDSA", 114),
        ] {
            let token = signed(algorithm, length);
            assert_eq!(check(&token), Ok(()), "{algorithm} {length}");
            let cut = &token[..token.len() - 2];
            assert_eq!(
                check(cut),
                Err("is a truncated JSON Web Token"),
                "{algorithm}"
            );
        }
    }

    #[test]
    fn what_cannot_be_sent_is_refused() {
        for (token, problem) in [
            ("", "is empty"),
            ("a\nb", "contains a control character or a line break"),
            ("a\u{7f}", "contains a control character or a line break"),
            ("a b", NOT_A_TOKEN),
            ("é", NOT_A_TOKEN),
            (&"x".repeat(1 << 16), "is too large for a token"),
        ] {
            assert_eq!(check(token), Err(problem));
        }
    }
}
