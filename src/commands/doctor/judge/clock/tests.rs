// SPDX-License-Identifier: Apache-2.0

use super::super::testing::{DAY, Room, certificate, clock_ahead};
use super::*;
use crate::access::token::{Claims, TokenKind};
use crate::catalog::split_consequences;
use crate::facts::Fact;

/// Creates a machine whose kubelet certificate is valid between these times, in seconds from now.
fn with_certificate(begins: i64, ends: i64) -> Room {
    let mut room = Room::new();
    let certificate = certificate(Api::Guest, CredentialRole::Client, begins, ends);
    room.examination.credentials.certificates = Fact::Known(vec![certificate]);
    room
}

#[test]
fn a_clock_that_makes_a_certificate_seem_ended_is_the_cause() {
    // (begins, ends, offset of Harvester's clock) and whether the clock is the cause.
    for (begins, ends, ahead, is_cause) in [
        (-400 * DAY, -30 * DAY, -60 * DAY, true),
        (10 * DAY, 300 * DAY, 20 * DAY, true),
        (-10 * DAY, 5 * DAY, 20 * DAY, true),
        (-10 * DAY, 300 * DAY, 20 * DAY, false),
        (-400 * DAY, -30 * DAY, 0, false),
        (-400 * DAY, -30 * DAY, -5 * DAY, false),
    ] {
        let mut room = with_certificate(begins, ends);
        room.examination.servers.harvester = clock_ahead(ahead);
        let codes = room.codes(findings);
        let cause = codes.contains(&Code::ClockSkew);
        assert_eq!(cause, is_cause, "{begins} {ends} {ahead}: {codes:?}");
        let differs = codes.contains(&Code::ClockDrift);
        assert_eq!(differs, !is_cause && ahead != 0, "{begins} {ends} {ahead}");
    }
}

#[test]
fn a_wrong_clock_hides_what_follows_from_it() {
    let codes = [
        Code::CredentialExpires,
        Code::HarvesterTlsError,
        Code::GuestApiTlsError,
        Code::HarvesterUnauthorized,
        Code::ClockSkew,
        Code::HarvesterCredentialMissing,
    ];
    let found = codes.map(|code| Finding::new(code, ""));
    let (left, _) = split_consequences(found.to_vec());
    let left: Vec<Code> = left.iter().map(|finding| finding.code).collect();
    // Date and certificate of a server that cannot be verified prove nothing: its error is always shown.
    let shown = [
        Code::HarvesterTlsError,
        Code::GuestApiTlsError,
        Code::ClockSkew,
        Code::HarvesterCredentialMissing,
    ];
    assert_eq!(left, shown);
}

#[test]
fn a_certificate_of_the_future_shows_a_wrong_clock_without_time_synchronization() {
    let mut room = with_certificate(30 * DAY, 300 * DAY);
    assert_eq!(room.codes(findings), [Code::ClockSkew]);
    // A server on this machine has the same clock, right or wrong.
    room.examination.servers.guest = clock_ahead(0);
    assert_eq!(room.codes(findings), [Code::ClockSkew]);
    room.examination.servers.harvester = clock_ahead(1);
    assert_eq!(room.codes(findings), []);
}

#[test]
fn a_token_that_ends_by_one_clock_only_is_distinguished_too() {
    let mut room = Room::new();
    room.examination.credentials.token = Fact::Known(TokenKind::Jwt(Claims {
        issued: None,
        expires: Some(super::super::testing::NOW - 60),
        ..Claims::default()
    }));
    room.examination.servers.harvester = clock_ahead(-DAY);
    let found = room.ask(findings);
    assert_eq!(found.len(), 1);
    assert_eq!(found[0].code, Code::ClockSkew);
    assert!(
        found[0].seen.contains("the Harvester token"),
        "{}",
        found[0].seen
    );
}

#[test]
fn a_little_difference_is_none_and_dates_at_the_end_of_time_are_no_panic() {
    for ahead in [-60, -1, 0, 60] {
        let mut room = with_certificate(-DAY, DAY);
        room.examination.servers.harvester = clock_ahead(ahead);
        assert_eq!(room.codes(findings), [], "{ahead}");
    }
    for ahead in [i64::MIN, i64::MAX] {
        let mut room = with_certificate(-DAY, DAY);
        room.examination.credentials.token = Fact::Known(TokenKind::Jwt(Claims {
            issued: Some(i64::MIN),
            expires: Some(i64::MAX),
            ..Claims::default()
        }));
        room.examination.servers.harvester = clock_ahead(ahead);
        assert_eq!(room.codes(findings), [Code::ClockSkew], "{ahead}");
    }
}

#[test]
fn a_clock_without_a_time_service_is_a_notice_and_not_knowing_it_is_none() {
    let mut room = Room::new();
    assert_eq!(room.codes(findings), []);
    room.examination.clock.synchronized = Fact::Known(true);
    assert_eq!(room.codes(findings), []);
    room.examination.clock.synchronized = Fact::Known(false);
    assert_eq!(room.codes(findings), [Code::ClockNotSynchronized]);
}
