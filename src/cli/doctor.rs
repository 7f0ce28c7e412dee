// SPDX-License-Identifier: Apache-2.0
//! `doctor`: every reason why identity or topology is wrong, with the command that fixes it.

use std::fmt::Write;

use serde_json::json;
use tokio::runtime::Builder;

use super::run::{Process, Silent, SystemClock, earlier, foreign};
use super::{Answer, Exit, Output};
use crate::agent::{self, Clock, Mode};
use crate::bus::Bus;
use crate::config::{self, Settings};
use crate::decide::examination::{self, Case};
use crate::decide::{Memory, diagnosis::Diagnosis};
use crate::escape::one_line;
use crate::findings::{Code, Finding};
use crate::observe::World;
use crate::observe::machine::read_machine;
use crate::state::{self, MachineId};
use crate::triggers::health::Health;

/// The longest text shown of one finding, in characters.
const SEEN_MAX: usize = 1000;

/// Looks, and says what is wrong.
pub fn run(process: &Process) -> Answer {
    let settings = match config::load(&process.root, process.config.as_deref()) {
        Ok(loaded) => loaded.settings,
        Err(errors) => return Answer::complaint(format!("{errors}\n"), Exit::Configuration),
    };
    let machine = read_machine(&process.root);
    if let Some(vendor) = foreign(&machine, &settings) {
        let seen = format!("the firmware says {vendor}");
        let diagnosis = Diagnosis::new(&[Finding::new(Code::NotKubevirt, seen)], &[]);
        return answer(process, &diagnosis, Exit::NotKubevirt);
    }
    let runtime = match Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            let text = format!("the kernel gives no event loop: {error}\n");
            return Answer::complaint(text, Exit::TryAgain);
        }
    };
    let diagnosis = runtime.block_on(look(process, &settings));
    // Not for the sake of a name server or a disk that does not answer.
    runtime.shutdown_background();
    let Some((diagnosis, unanswered)) = diagnosis else {
        return Answer::new("", Exit::TryAgain);
    };
    let exit = match () {
        () if diagnosis.has_errors() => Exit::Failed,
        () if unanswered => Exit::TryAgain,
        () => Exit::Ok,
    };
    answer(process, &diagnosis, exit)
}

/// One ordinary round that writes nothing, and the examination beside it; and whether an API gave no answer.
async fn look(process: &Process, settings: &Settings) -> Option<(Diagnosis, bool)> {
    let clock = SystemClock::new();
    let (state, _) = state::load(&process.root, &MachineId::of(&read_machine(&process.root)));
    let bus = Bus::new(&process.root, process.system_bus_address.as_deref());
    let mut world = World::new(
        process.root.clone(),
        bus,
        Health::default(),
        earlier(&state),
    );
    let rounds = Box::pin(agent::once(
        settings,
        &mut world,
        &mut Silent,
        &clock,
        Memory::default(),
        Mode::DryRun,
    ))
    .await;
    let round = rounds.last()?;
    let examination = Box::pin(world.examine(settings, round)).await;
    let case = Case {
        settings,
        who: &round.who,
        identity: &round.identity,
        placement: round.placement.as_ref(),
        examination: &examination,
        now: clock.now(),
    };
    let mut findings = round.plan.findings.clone();
    findings.extend(examination::findings(&case));
    let diagnosis = Diagnosis::new(&findings, &examination.gaps());
    Some((diagnosis, round.is_unanswered()))
}

fn answer(process: &Process, diagnosis: &Diagnosis, exit: Exit) -> Answer {
    let text = match process.output {
        Output::Json => format!("{:#}\n", document(diagnosis)),
        Output::Text => text(diagnosis),
    };
    Answer::new(text, exit)
}

fn document(diagnosis: &Diagnosis) -> serde_json::Value {
    let findings = diagnosis
        .sections
        .iter()
        .flat_map(|section| &section.findings);
    let findings: Vec<serde_json::Value> = findings
        .map(|finding| {
            let entry = finding.code.entry();
            json!({
                "code": entry.name,
                "group": finding.group().as_str(),
                "severity": entry.severity.as_str(),
                "seen": one_line(&finding.seen, SEEN_MAX),
            })
        })
        .collect();
    json!({"findings": findings})
}

fn text(diagnosis: &Diagnosis) -> String {
    let mut text = String::new();
    for section in &diagnosis.sections {
        let verdict = if section.findings.is_empty() {
            "ok"
        } else {
            ""
        };
        let _ = writeln!(text, "{}: {verdict}", section.group.title());
        for finding in &section.findings {
            let entry = finding.code.entry();
            let _ = writeln!(
                text,
                "  {}: {} [{}]\n    seen  {}\n    why   {}\n    fix   {}",
                entry.severity.as_str(),
                entry.title,
                entry.name,
                one_line(&finding.seen, SEEN_MAX),
                entry.consequence,
                one_line(finding.remedy(), SEEN_MAX),
            );
        }
        for gap in &section.gaps {
            let why = one_line(&gap.why.text, SEEN_MAX);
            let _ = writeln!(text, "  cannot see {}: {why}", gap.what);
        }
    }
    text
}
