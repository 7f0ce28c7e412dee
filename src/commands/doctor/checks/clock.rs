// SPDX-License-Identifier: Apache-2.0
//! Is the clock of this machine right? If it is wrong, expired certificates are a consequence, not the cause.
//!
//! The clock of a server may be wrong as well, and the guest cluster's server may run on this machine. So a difference alone is a
//! warning. It is the cause of a problem only if a certificate or token is valid according to only one of the clocks.

use super::credentials;
use crate::access::token::TokenKind;
use crate::catalog::{Api, Code, Finding, Group};
use crate::commands::doctor::case::Checked;
use crate::commands::doctor::certificate::{Certificate, CertificateRole};
use crate::commands::doctor::reads::{Reads, briefly};
use crate::facts::Fact;
use crate::facts::clock::date;
use crate::observe::guest_agent::why;
use crate::wire::dbus::{Bus, Peer};

/// The maximum difference between clocks, in seconds: the date in a response has no fractions, and the response takes time.
const DIFFERENCE_MAX: i64 = 60;

/// The D-Bus service of systemd-timedated.
const TIMEDATE: Peer<'_> = Peer {
    name: "org.freedesktop.timedate1",
    path: "/org/freedesktop/timedate1",
    interface: "org.freedesktop.timedate1",
};

/// The clocks, and what depends on them.
#[derive(Debug, Default)]
struct Clocks {
    /// The time in seconds by which the clock of Harvester's server is ahead of ours.
    harvester: Option<i64>,
    /// The same of the guest cluster's server.
    guest: Option<i64>,
    /// Whether the kernel clock is synchronized.
    is_synchronized: Option<bool>,
    /// The token and the certificates.
    lives: Vec<Lifetime>,
}

/// The validity of a certificate or token.
#[derive(Debug)]
struct Lifetime {
    what: String,
    begins: i64,
    ends: i64,
}

/// Compares the clocks of both servers with ours and with all validities.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let ahead = |api| reads.server(api).known()?.client.server_shown().ahead;
    let what = "clock synchronization (NTP)";
    let synchronized = briefly(synchronized(reads.observer.bus())).await;
    let synchronized = checked.need(Group::Machine, what, &synchronized);
    let token = credentials::token(reads);
    let lives = token.known().and_then(Lifetime::of_token).into_iter();
    // A server without a response was not verified: its certificate proves nothing.
    let mut certificates = reads.certificates();
    certificates.retain(|one| one.role != CertificateRole::Server || ahead(one.api).is_some());
    let clocks = Clocks {
        harvester: ahead(Api::Harvester),
        guest: ahead(Api::Guest),
        is_synchronized: synchronized.copied(),
        lives: lives.chain(certificates.iter().map(Lifetime::of)).collect(),
    };
    let findings = judge(reads.case.seconds(), &clocks);
    checked.findings.extend(findings);
}

/// Asks systemd-timedated, which asks the kernel (`adjtimex(2)`), regardless of the NTP client.
async fn synchronized(bus: &Bus) -> Fact<bool> {
    let synchronized = bus.property(TIMEDATE, "NTPSynchronized").await;
    synchronized.map_err(|error| why(&error)).into()
}

impl Lifetime {
    fn of_token(token: &TokenKind) -> Option<Self> {
        let TokenKind::Jwt(claims) = token else {
            return None;
        };
        Some(Self {
            what: "the Harvester token".to_owned(),
            begins: claims.issued.unwrap_or(i64::MIN),
            ends: claims.expires.unwrap_or(i64::MAX),
        })
    }

    fn of(certificate: &Certificate) -> Self {
        let role = match certificate.role {
            CertificateRole::Client => "client certificate",
            CertificateRole::Authority => "CA certificate",
            CertificateRole::Server => "certificate",
        };
        let (subject, origin) = (&certificate.subject, &certificate.origin);
        Self {
            what: format!("the {role} `{subject}` of {origin}"),
            begins: certificate.begins,
            ends: certificate.ends,
        }
    }

    fn covers(&self, time: i64) -> bool {
        (self.begins..=self.ends).contains(&time)
    }

    fn span(&self) -> String {
        match (self.begins, self.ends) {
            (i64::MIN, ends) => format!("until {}", date(ends)),
            (begins, i64::MAX) => format!("from {}", date(begins)),
            (begins, ends) => format!("from {} until {}", date(begins), date(ends)),
        }
    }
}

fn judge(now: i64, clocks: &Clocks) -> Vec<Finding> {
    let servers = [
        ("the Harvester API", clocks.harvester),
        ("the guest cluster API", clocks.guest),
    ];
    let differing = servers
        .into_iter()
        .filter_map(|(whose, ahead)| Some((whose, ahead?)))
        .filter(|(_, ahead)| ahead.saturating_abs() > DIFFERENCE_MAX)
        .max_by_key(|(_, ahead)| ahead.saturating_abs());
    let mut lives = clocks.lives.iter();
    let mut findings = Vec::new();
    if let Some((whose, ahead)) = differing {
        let theirs = now.saturating_add(ahead);
        let text = format!(
            "it is {} on this node and {} according to {whose}",
            date(now),
            date(theirs)
        );
        findings.push(
            match lives.find(|life| life.covers(now) != life.covers(theirs)) {
                Some(life) => {
                    let (what, span) = (&life.what, life.span());
                    let text = format!(
                        "{text}; {what} is valid according to only one of the two clocks ({span})"
                    );
                    Finding::new(Code::ClockSkew, text)
                }
                None => Finding::new(Code::ClockDrift, text),
            },
        );
    } else if clocks.harvester.is_none()
        && let Some(life) = lives.find(|life| now < life.begins)
    {
        // No server confirms our time, and a certificate or token is from the future. The guest cluster's server does not count: it
        // may run on this machine.
        let text = format!(
            "it is {} on this node, and {} is not yet valid ({})",
            date(now),
            life.what,
            life.span()
        );
        findings.push(Finding::new(Code::ClockSkew, text));
    }
    if clocks.is_synchronized == Some(false) {
        let text = "NTPSynchronized is no (timedatectl)";
        findings.push(Finding::new(Code::ClockNotSynchronized, text));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::token::Claims;
    use crate::catalog::split_consequences;
    use crate::commands::doctor::testing::{NOW, certificate, seconds, texts};

    /// The file has the clocks of the servers, certificates and tokens, and what is found.
    #[test]
    fn a_difference_is_the_cause_if_something_is_valid_by_one_clock_only() {
        let file = "src/commands/doctor/checks/clock.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let mut clocks = Clocks::default();
            for line in case.lines() {
                match line.split(' ').collect::<Vec<_>>()[..] {
                    ["harvester", ahead] => clocks.harvester = Some(seconds(ahead)),
                    ["guest", ahead] => clocks.guest = Some(seconds(ahead)),
                    ["synchronized", state] => clocks.is_synchronized = Some(state == "yes"),
                    ["certificate", begins, ends] => {
                        let (begins, ends) = (seconds(begins), seconds(ends));
                        let role = CertificateRole::Client;
                        let certificate = certificate(Api::Guest, role, begins, ends);
                        clocks.lives.push(Lifetime::of(&certificate));
                    }
                    ["token", issued, expires] => {
                        let token = TokenKind::Jwt(Claims {
                            issued: issued.parse().ok(),
                            expires: expires.parse().ok(),
                            ..Claims::default()
                        });
                        clocks.lives.extend(Lifetime::of_token(&token));
                    }
                    _ => assert_eq!(line, ""),
                }
            }
            texts(&judge(NOW, &clocks)).join("\n")
        });
    }

    #[test]
    fn a_wrong_clock_hides_what_follows_from_it() {
        use Code::{ClockSkew, GuestApiTlsError, HarvesterCredentialMissing, HarvesterTlsError};
        let hidden = [Code::CredentialExpires, Code::HarvesterUnauthorized];
        // Date and certificate of a server that cannot be verified prove nothing: its error is always shown.
        let shown = [
            HarvesterTlsError,
            GuestApiTlsError,
            ClockSkew,
            HarvesterCredentialMissing,
        ];
        let found = hidden.iter().chain(&shown);
        let found = found.map(|code| Finding::new(*code, ""));
        let (left, _) = split_consequences(found.collect());
        assert!(left.iter().map(|one| one.code).eq(shown), "{left:?}");
    }
}
