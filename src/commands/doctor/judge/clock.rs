// SPDX-License-Identifier: Apache-2.0
//! Checks the clock. If it is wrong, expired certificates are a consequence, not the cause.
//!
//! The clock of a server may be wrong as well, and the guest cluster's server may run on this machine. So a difference alone is a
//! warning. It is the cause of a problem only if a certificate or token is valid according to only one of the clocks.

use super::{Case, date};
use crate::access::token::TokenKind;
use crate::catalog::{Code, Finding};
use crate::commands::doctor::facts::credentials::{CertificateFacts, CredentialRole};
use crate::facts::observation::Api;

/// The maximum difference between clocks, in seconds: the date in a response has no fractions, and the response takes time.
const DIFFERENCE_MAX: i64 = 60;

/// The validity of a certificate or token.
struct Lifetime {
    what: String,
    begins: i64,
    ends: i64,
}

impl Lifetime {
    fn covers(&self, time: i64) -> bool {
        (self.begins..=self.ends).contains(&time)
    }
}

/// Returns the findings.
pub fn findings(case: &Case<'_>) -> Vec<Finding> {
    let lives = lives(case);
    let now = case.now.wall.unix_timestamp();
    let differing = differing(case);
    let mut findings = Vec::new();
    match (differing, contradicted(&lives, now, differing)) {
        (Some((api, ahead)), Some(life)) => {
            let text = format!(
                "{}; {} is valid according to only one of the two clocks ({})",
                difference(case, api, ahead),
                life.what,
                span(life)
            );
            findings.push(Finding::new(Code::ClockSkew, text));
        }
        (Some((api, ahead)), None) => {
            let text = difference(case, api, ahead);
            findings.push(Finding::new(Code::ClockDrift, text));
        }
        (None, _) if is_confirmed(case) => {}
        // No server reports the time, and a certificate or token is from the future.
        (None, _) => findings.extend(lives.iter().find(|life| now < life.begins).map(|life| {
            let text = format!(
                "it is {} on this node, and {} is not yet valid ({})",
                date(now),
                life.what,
                span(life)
            );
            Finding::new(Code::ClockSkew, text)
        })),
    }
    if case.examination.clock.synchronized.known() == Some(&false) {
        let text = "NTPSynchronized is no (timedatectl)";
        findings.push(Finding::new(Code::ClockNotSynchronized, text));
    }
    findings
}

/// Returns the server whose clock differs most from ours.
fn differing(case: &Case<'_>) -> Option<(Api, i64)> {
    let servers = case.examination.servers.seen();
    servers
        .filter_map(|(api, shown)| Some((api, shown.ahead?)))
        .filter(|(_, ahead)| ahead.saturating_abs() > DIFFERENCE_MAX)
        .max_by_key(|(_, ahead)| ahead.saturating_abs())
}

/// Reports whether Harvester confirms our time. The guest cluster's server does not count: it may run on this machine.
fn is_confirmed(case: &Case<'_>) -> bool {
    let harvester = case.examination.servers.harvester.known();
    harvester.is_some_and(|shown| shown.ahead.is_some())
}

/// Returns the certificate or token that is valid according to only one of the two clocks.
fn contradicted(lives: &[Lifetime], now: i64, differing: Option<(Api, i64)>) -> Option<&Lifetime> {
    let (_, ahead) = differing?;
    let theirs = now.saturating_add(ahead);
    lives
        .iter()
        .find(|life| life.covers(now) != life.covers(theirs))
}

/// Returns everything with a validity: the token and the certificates.
fn lives(case: &Case<'_>) -> Vec<Lifetime> {
    let credentials = &case.examination.credentials;
    let token = match credentials.token.known() {
        Some(TokenKind::Jwt(claims)) => Some(Lifetime {
            what: "the Harvester token".to_owned(),
            begins: claims.issued.unwrap_or(i64::MIN),
            ends: claims.expires.unwrap_or(i64::MAX),
        }),
        _ => None,
    };
    let certificates = credentials.certificates.known();
    let shown = case.examination.servers.seen();
    let shown = shown.filter_map(|(_, shown)| shown.certificate.as_ref());
    let certificates = certificates.into_iter().flatten().chain(shown).map(life);
    token.into_iter().chain(certificates).collect()
}

fn life(certificate: &CertificateFacts) -> Lifetime {
    let CertificateFacts {
        subject, origin, ..
    } = certificate;
    Lifetime {
        what: match certificate.role {
            CredentialRole::Client => format!("the client certificate `{subject}` of {origin}"),
            CredentialRole::Authority => format!("the CA certificate `{subject}` of {origin}"),
            CredentialRole::Server => format!("the certificate `{subject}` of {origin}"),
        },
        begins: certificate.begins,
        ends: certificate.ends,
    }
}

fn difference(case: &Case<'_>, api: Api, ahead: i64) -> String {
    let now = case.now.wall.unix_timestamp();
    let whose = match api {
        Api::Harvester => "the Harvester API",
        Api::Guest => "the guest cluster API",
    };
    format!(
        "it is {} on this node and {} according to {whose}",
        date(now),
        date(now.saturating_add(ahead))
    )
}

fn span(life: &Lifetime) -> String {
    match (life.begins, life.ends) {
        (i64::MIN, ends) => format!("until {}", date(ends)),
        (begins, i64::MAX) => format!("from {}", date(begins)),
        (begins, ends) => format!("from {} until {}", date(begins), date(ends)),
    }
}

#[cfg(test)]
mod tests;
