// SPDX-License-Identifier: Apache-2.0
//! `whoami`: prints which VM this machine is and which host runs it, with the evidence.

use super::answer::{Answer, Exit, Output};
use super::options::config_option;
use super::process::Process;
use super::run::{not_root, one_round};
use crate::agent::Mode;
use crate::catalog::{Api, Finding, Flag, Group, Severity};
use crate::facts::UnavailableKind;
use crate::report::show;
use crate::sys::escape::json_text;

/// The text after the options in the help.
pub const EXIT_STATUS: &str = "\
Exit status: 0 VM and host are known; 1 they are not, such as without a Harvester kubeconfig, or the identity has an error; \
3 warnings with --strict; 4 not a KubeVirt virtual machine; 75 an API is unreachable, and nothing else prevents that they are known, or it is not run as root; 78 invalid configuration.";

/// Runs one round that writes nothing: 0 if the VM and host are known and no finding about the identity is an error, 75 if an API
/// was unreachable and nothing lasting prevents that they are known, 1 otherwise.
pub fn run(process: &Process, is_strict: bool) -> Answer {
    if let Some(answer) = not_root(process, "whoami") {
        return answer;
    }
    one_round(process, Mode::DryRun, true, |round, status| {
        let text = match process.output {
            Output::Json => json_text(&status.to_json()),
            Output::Text => {
                let config = config_option(process.config.as_deref());
                show::whoami(status, process.show_now(), &config)
            }
        };
        let is_known = status.identity.vm.is_some() && status.placement.is_some();
        let is_error = |finding: &Finding| {
            finding.group() == Group::Identity && finding.code.entry().severity == Severity::Error
        };
        let lasts = |finding: &Finding| {
            let is_of_harvester = finding.group() == Group::of_api(Api::Harvester);
            is_of_harvester
                && finding.code.entry().severity == Severity::Error
                && !finding.code.is(Flag::MayPass)
        };
        let failure = round.observation.read_failure(Api::Harvester);
        let is_lasting = failure.is_some_and(|why| why.kind != UnavailableKind::Unreachable)
            || round.plan.findings.iter().any(lasts);
        let exit = if round.is_unanswered() && (is_known || !is_lasting) {
            Exit::TryAgain
        } else if is_known && !round.plan.findings.iter().any(is_error) {
            Exit::Ok
        } else {
            Exit::Failed
        };
        Answer::new(text, exit).with_warnings(is_strict, status)
    })
}
