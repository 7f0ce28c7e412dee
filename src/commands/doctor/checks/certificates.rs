// SPDX-License-Identifier: Apache-2.0
//! Do the certificates of the CAs and servers expire, and are those of the servers valid for their addresses?

use crate::catalog::{
    Api, Code, CommandPlace, Finding, FixCommand, Group, NEW_HARVESTER_KUBECONFIG,
    RESTART_HARVESTER, RESTART_SERVERS, ROTATE_CA,
};
use crate::commands::doctor::address::Address;
use crate::commands::doctor::case::{Case, Checked};
use crate::commands::doctor::certificate::{Certificate, CertificateRole};
use crate::commands::doctor::reads::Reads;
use crate::decide::findings::expiry::{End, reported};
use crate::facts::clock::date;
use crate::report::relative::expiry;

/// Prints when the current CA of Harvester expires.
const CURRENT_CA: &str = "kubectl -n default get configmap kube-root-ca.crt -o 'jsonpath={.data.ca\\.crt}' | openssl x509 -noout -subject -enddate";

/// The maximum number of names of a certificate that are shown.
const NAMES_MAX: usize = 64;

/// Checks all certificates, and adds that of Harvester's server to the summary.
pub(super) async fn check(reads: &Reads<'_>, checked: &mut Checked) {
    let case = &reads.case;
    for certificate in reads.certificates() {
        let expires = expires(case, &certificate);
        checked.findings.extend(expires);
        checked.findings.extend(misnamed(&certificate));
        if (certificate.api, certificate.role) == (Api::Harvester, CertificateRole::Server) {
            let expiry = expiry(case.now.wall, &date(certificate.ends));
            checked.note(Group::HarvesterApi, format!("certificate {expiry}"));
        }
    }
}

/// Returns a finding for a CA or server certificate that expires. The running agent reports the kubelet's client certificate.
fn expires(case: &Case<'_>, certificate: &Certificate) -> Option<Finding> {
    let (End::Over(when) | End::Near(when)) = reported(certificate.ends, case.seconds())?;
    let (origin, subject) = (&certificate.origin, &certificate.subject);
    let subject = subject.strip_prefix("CN=").unwrap_or(subject);
    let api = certificate.api;
    let (what, group) = match certificate.role {
        CertificateRole::Client => return None,
        CertificateRole::Authority => (format!("CA {subject}"), Group::of_credential(api)),
        CertificateRole::Server => (format!("{subject} (server)"), Group::of_api(api)),
    };
    let (step, command) = match group {
        Group::HarvesterCredential => (NEW_HARVESTER_KUBECONFIG, Some(CURRENT_CA)),
        Group::HarvesterApi => (RESTART_HARVESTER, Some("kubectl get nodes")),
        Group::KubeletCredential => (ROTATE_CA, None),
        _ => (RESTART_SERVERS, None),
    };
    let finding = Finding::new(Code::CredentialExpires, format!("{origin}: {what} {when}"));
    let command = command.map(|text| FixCommand::new(CommandPlace::Harvester, text.to_owned()));
    let finding = finding.with_all_commands(command.into_iter().collect());
    Some(finding.about(group).with_remedy(step))
}

/// Returns a finding if a server certificate of a trusted CA is not valid for the name of the server. The names of another certificate
/// are not to be used: anyone may have written it.
fn misnamed(certificate: &Certificate) -> Option<Finding> {
    let address = Address::parse(&certificate.origin)?;
    if !certificate.is_misnamed || is_for(&certificate.names, address.host()) {
        return None;
    }
    let names = match certificate.names.as_slice() {
        [] => "no name".to_owned(),
        names => names.get(..NAMES_MAX).unwrap_or(names).join(", "),
    };
    let origin = &certificate.origin;
    let text = format!("{origin}: the certificate is valid for {names}");
    let group = Group::of_api(certificate.api);
    Some(Finding::new(Code::ServerNotInCertificate, text).about(group))
}

/// Reports whether one of the names matches this host (RFC 9525, 6.3: a wildcard matches only the leftmost label).
fn is_for(names: &[String], host: &str) -> bool {
    let parent = host.split_once('.').map(|(_, parent)| parent);
    names.iter().any(|name| {
        let starred = name.strip_prefix("*.").zip(parent);
        name.eq_ignore_ascii_case(host)
            || starred.is_some_and(|(named, parent)| named.eq_ignore_ascii_case(parent))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::testing::{Bench, DAY, certificate};

    #[test]
    fn authorities_and_servers_are_reported_from_thirty_days_with_the_days_that_are_left() {
        let bench = Bench::new();
        for (left, text) in [
            (30 * DAY, None),
            (30 * DAY - 1, Some("in 29 days")),
            (14 * DAY, Some("in 14 days")),
            (2 * DAY - 1, Some("in 1 day")),
            (DAY - 1, Some("in less than a day")),
            (0, Some("expired at")),
            (-DAY, Some("expired at")),
        ] {
            for role in [
                CertificateRole::Client,
                CertificateRole::Authority,
                CertificateRole::Server,
            ] {
                let certificate = certificate(Api::Harvester, role, -DAY, left);
                let found = bench.ask(|case| expires(case, &certificate));
                // The running agent reports the client certificate.
                let expected = text.filter(|_| role != CertificateRole::Client);
                assert_eq!(found.is_some(), expected.is_some(), "{left} {role:?}");
                if let (Some(found), Some(text)) = (found, expected) {
                    assert_eq!(found.code, Code::CredentialExpires);
                    assert!(found.seen.contains(text), "{}", found.seen);
                    let [command] = found.commands() else {
                        panic!("{found:?}");
                    };
                    assert_eq!(command.place, CommandPlace::Harvester);
                }
            }
        }
    }

    #[test]
    fn a_server_under_another_name_is_reported_with_the_names_that_it_has() {
        let server = |names: &[&str], origin: &str| Certificate {
            origin: origin.to_owned(),
            names: names.iter().map(ToString::to_string).collect(),
            is_misnamed: true,
            ..certificate(Api::Harvester, CertificateRole::Server, -DAY, 300 * DAY)
        };
        let other = server(&["192.0.2.10", "rke2"], "https://harvester.example:6443");
        let found = misnamed(&other).unwrap();
        assert_eq!(found.code, Code::ServerNotInCertificate);
        assert!(found.seen.ends_with("192.0.2.10, rke2"), "{}", found.seen);
        for (name, origin, is_valid) in [
            ("192.0.2.10", "https://192.0.2.10:6443", true),
            (
                "fd00::10",
                "https://[fd00::10]:6443/k8s/clusters/local",
                true,
            ),
            ("Harvester.example", "https://harvester.example:6443", true),
            ("*.example", "https://harvester.example:6443", true),
            ("*.example", "https://a.b.example:6443", false),
            ("*.example", "https://example:6443", false),
            ("192.0.2.1", "https://192.0.2.10:6443", false),
        ] {
            // All names count, and the first ones are shown.
            let others = ["192.0.2.2"; NAMES_MAX];
            for names in [vec![name], [&others[..], &[name]].concat()] {
                let found = misnamed(&server(&names, origin));
                assert_eq!(found.is_none(), is_valid, "{name} {origin}");
                let count = found.map_or(0, |found| found.seen.matches(", ").count());
                assert!(count < NAMES_MAX, "{count}");
            }
        }
        // The names in a certificate of an unknown CA are not verified; a trusted one is valid for `tls-server-name`.
        let unverified = Certificate {
            is_misnamed: false,
            ..other
        };
        assert_eq!(misnamed(&unverified), None);
    }
}
