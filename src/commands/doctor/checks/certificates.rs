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
    use crate::commands::doctor::testing::{Bench, DAY, certificate, seconds};

    /// Returns the certificate of a server with these names, of which none is its address.
    fn server(origin: &str, names: &[&str]) -> Certificate {
        Certificate {
            origin: origin.to_owned(),
            names: names.iter().map(ToString::to_string).collect(),
            is_misnamed: true,
            ..certificate(Api::Harvester, CertificateRole::Server, -DAY, 300 * DAY)
        }
    }

    /// The file has certificates: the purpose and in how many seconds or days it expires, or the address of a server and its names. Below
    /// each are the finding, its place and its commands.
    #[test]
    fn each_certificate_has_its_finding() {
        let file = "src/commands/doctor/checks/certificates.txt";
        harvester_lab::expected::cases_are_expected(file, |case| {
            let words: Vec<&str> = case.split(' ').collect();
            let role = match words[0] {
                "client" => Some(CertificateRole::Client),
                "authority" => Some(CertificateRole::Authority),
                "server" => Some(CertificateRole::Server),
                _ => None,
            };
            let found = match role {
                Some(role) => {
                    let certificate = certificate(Api::Harvester, role, -DAY, seconds(words[1]));
                    Bench::new().ask(|case| expires(case, &certificate))
                }
                None => misnamed(&server(words[0], &words[1..])),
            };
            found.map_or_else(String::new, |found| {
                let commands = found.commands().iter();
                let commands = commands.map(|one| format!("\n{}: {}", one.place.title(), one.text));
                let (code, group) = (found.code, found.group().as_str());
                format!(
                    "{code} ({group}): {}{}",
                    found.seen,
                    commands.collect::<String>()
                )
            })
        });
    }

    #[test]
    fn all_names_count_and_the_first_ones_are_shown() {
        let many = [&["192.0.2.2"; NAMES_MAX][..], &["192.0.2.10"]].concat();
        assert_eq!(misnamed(&server("https://192.0.2.10:6443", &many)), None);
        let other = server("https://192.0.2.1:6443", &many);
        let found = misnamed(&other).unwrap();
        assert_eq!(found.seen.matches(", ").count(), NAMES_MAX - 1);
        // The names in a certificate of an unknown CA are not verified; a trusted one is valid for `tls-server-name`.
        let unverified = Certificate {
            is_misnamed: false,
            ..other
        };
        assert_eq!(misnamed(&unverified), None);
    }
}
