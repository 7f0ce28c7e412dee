// SPDX-License-Identifier: Apache-2.0
//! Asks the sources of labels of the host that runs the VM, and keeps their answers.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::{LabelSettings, Settings, TopologySettings};
use crate::decide::placement::Choice;
use crate::facts::names::HostName;
use crate::facts::placement::{HostLabels, Source};
use crate::facts::vmi::Vmi;
use crate::facts::{Fact, UnavailableKind};
use crate::sys::document::json::{DATA_BYTES, Identifier, StringMap, objects};
use crate::wire::kubeapi::{Client, NODES, ObjectPath, PODS};

/// How long a refusal by RBAC is cached. A newly granted role takes effect after that, or within 10 s of `systemctl reload`.
const DENIED_FOR: Duration = Duration::from_secs(60 * 60);

/// The maximum number of answers that are cached.
const KEPT_MAX: usize = 16;

/// The answers of the sources. A VM that returns to a host needs no request, and a request that is known to be refused is not sent.
#[derive(Debug, Default, PartialEq)]
pub struct KeptLabels {
    /// The host and the settings that `current` is about.
    about: Option<(HostName, TopologySettings, LabelSettings)>,
    /// The answers about the host of the VM, until they are doubted.
    current: BTreeMap<Source, Fact<HostLabels>>,
    /// Answers that last, about hosts that were asked for recently, each with the time until which it does.
    lasting: BTreeMap<(Source, HostName), (Fact<HostLabels>, Duration)>,
}

impl KeptLabels {
    /// Forgets the answers about another host, or for other settings.
    pub fn start(&mut self, host: &HostName, settings: &Settings) {
        let (topology, labels) = (settings.topology.clone(), settings.labels.clone());
        let about = Some((host.clone(), topology, labels));
        if self.about != about {
            self.current.clear();
            self.about = about;
        }
    }

    /// Forgets the current answers, but not those that last.
    pub fn forget_current(&mut self) {
        self.about = None;
    }

    /// Forgets the labels of the host if its VM shows that they may be outdated. A refusal lasts: it says nothing about labels.
    pub fn doubt(&mut self, vmi: &Vmi) {
        let annotated = vmi.annotations_of_host();
        let annotated = annotated
            .and_then(|labels| labels.topology().ok())
            .filter(|topology| !topology.is_empty());
        let reported = self.current.get(&Source::HostNode).and_then(Fact::known);
        let reported = reported.and_then(|labels| labels.topology().ok());
        let is_doubtful = match (&annotated, &reported) {
            // Harvester copies these labels: if they differ, ours are older.
            (Some(annotated), Some(reported)) => annotated != reported,
            (Some(_), None) | (None, Some(_)) => false,
            // A pod of the instance may now have labels that it did not have before.
            (None, None) => true,
        };
        if is_doubtful
            && self.about.take().is_some()
            && let Some(host) = &vmi.host
        {
            let about = (Source::HostNode, host.clone());
            self.lasting
                .retain(|key, (answer, _)| *key != about || answer.known().is_none());
        }
    }

    /// Answers what is still wanted with a failure.
    pub fn give_up(&mut self, choice: &mut Choice<'_>, failed: &Fact<HostLabels>) {
        while let Some(source) = choice.wants() {
            let answer = self.current.entry(source);
            choice.answer(source, answer.or_insert_with(|| failed.clone()));
        }
    }

    /// Forgets the labels of all hosts.
    pub fn forget_labels(&mut self) {
        self.forget_current();
        self.lasting
            .retain(|_, (answer, _)| answer.known().is_none());
    }

    /// Forgets the refusals.
    pub fn forget_refusals(&mut self) {
        self.lasting.retain(|_, (answer, _)| answer.why().is_none());
    }

    fn get(&self, about: &(Source, HostName), uptime: Duration) -> Option<&Fact<HostLabels>> {
        let (answer, until) = self.lasting.get(about)?;
        (uptime < *until).then_some(answer)
    }

    /// Keeps the labels of a Node for `age`, and a refusal for an hour.
    fn keep(
        &mut self,
        about: (Source, HostName),
        answer: &Fact<HostLabels>,
        uptime: Duration,
        age: Duration,
    ) {
        let lasts = match answer {
            Fact::Known(_) if about.0 == Source::HostNode => age,
            Fact::Failed(why) if why.kind == UnavailableKind::Forbidden => DENIED_FOR,
            _ => return,
        };
        self.lasting.retain(|_, (_, until)| uptime < *until);
        if self.lasting.len() >= KEPT_MAX {
            let first = self.lasting.iter().min_by_key(|(_, (_, until))| *until);
            if let Some(first) = first.map(|(about, _)| about.clone()) {
                self.lasting.remove(&first);
            }
        }
        self.lasting.insert(about, (answer.clone(), uptime + lasts));
    }
}

/// Asks the sources that `choice` wants.
pub async fn ask(
    choice: &mut Choice<'_>,
    client: &Client,
    settings: &Settings,
    vmi: &Vmi,
    host: &HostName,
    kept: &mut KeptLabels,
    uptime: Duration,
) {
    while let Some(source) = choice.wants() {
        if let Some(answer) = kept.current.get(&source) {
            choice.answer(source, answer);
            continue;
        }
        let about = (source, host.clone());
        let answer = match kept.get(&about, uptime) {
            Some(answer) => answer.clone(),
            None => {
                let answer = match source {
                    Source::HostNode => host_node(client, host).await,
                    Source::LauncherPod => launcher_pod(client, vmi, host).await,
                    // No other source is asked.
                    _ => configmap(client, settings, host).await,
                };
                kept.keep(about, &answer, uptime, settings.timing.poll);
                answer
            }
        };
        kept.current.insert(source, answer);
    }
}

async fn host_node(client: &Client, host: &HostName) -> Fact<HostLabels> {
    let node = Fact::from(client.get_metadata(&NODES.named(host)).await);
    node.map(|node| node.metadata.labels.0.into_iter().collect())
}

objects! {
    /// A pod of a VM, in the list of them.
    pub struct LauncherPod {
        metadata: PodMetadata,
        spec: PodSpec,
    }

    struct PodMetadata {
        uid: Option<Identifier>,
        labels: StringMap,
    }

    struct PodSpec { node_name: Option<Identifier>, }

    /// The ConfigMap with the places of hosts.
    pub struct ConfigMap { data: StringMap<DATA_BYTES>, }
}

/// Reads the labels of the instance's active pod on the host: during a migration there are two pods.
async fn launcher_pod(client: &Client, vmi: &Vmi, host: &HostName) -> Fact<HostLabels> {
    let path = PODS.within(&vmi.namespace);
    let created_by = format!("kubevirt.io/created-by={}", vmi.uid);
    let selectors = [("labelSelector", created_by)];
    // Any user can set the label: pods that do not belong to the instance are neither kept nor counted.
    let here = |pod: LauncherPod| {
        let is_active = |uid: &Identifier| vmi.active_pods.contains(&uid.0);
        let is_here = pod.spec.node_name.as_deref() == Some(host.as_str())
            && pod.metadata.uid.as_ref().is_some_and(is_active);
        is_here.then_some(pod)
    };
    Fact::from(client.list(&path, &selectors, here).await).and_then(|pods| {
        let mut here = pods.into_iter();
        match (here.next(), here.next()) {
            (Some(pod), None) => Fact::Known(pod.metadata.labels.0.into_iter().collect()),
            _ => Fact::Absent,
        }
    })
}

/// Reads the entry of the host in the ConfigMap.
async fn configmap(client: &Client, settings: &Settings, host: &HostName) -> Fact<HostLabels> {
    let name = &settings.topology.configmap;
    let found = client.get::<ConfigMap>(&ObjectPath::configmap(name)).await;
    let entry = |found: ConfigMap| Fact::from(found.data.get(host.as_str()).cloned());
    let text = Fact::from(found).and_then(entry);
    text.and_then(|text| match super::configmap::labels(&text) {
        Ok(labels) => Fact::Known(labels),
        Err(error) => {
            let text = format!("entry `{host}` of ConfigMap {name}: {error}");
            Fact::failed(UnavailableKind::Malformed, text)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::placement::{HostSource, Located};

    #[test]
    fn a_refusal_is_not_asked_again_for_an_hour() {
        let about = (Source::ConfigMap, HostName::parse("hv-a").unwrap());
        let (hour, second) = (Duration::from_secs(3600), Duration::from_secs(1));
        let refused = Fact::failed(UnavailableKind::Forbidden, "configmaps is forbidden");
        let mut kept = KeptLabels::default();
        kept.keep(about.clone(), &refused, hour, second);
        assert_eq!(kept.get(&about, 2 * hour - second), Some(&refused));
        assert_eq!(kept.get(&about, 2 * hour), None);
        // Whatever else went wrong may be over at once, and other sources are read with the VM.
        for answer in [
            Fact::failed(UnavailableKind::Unreachable, "no route"),
            Fact::Known(HostLabels::default()),
        ] {
            let mut kept = KeptLabels::default();
            kept.keep(about.clone(), &answer, hour, hour);
            assert_eq!(kept.get(&about, hour), None);
        }
        kept.forget_labels();
        assert_eq!(kept.get(&about, hour), Some(&refused));
        kept.forget_refusals();
        assert_eq!(kept.get(&about, hour), None);
    }

    #[test]
    fn the_labels_of_the_last_hosts_are_known_until_the_next_poll() {
        let about = |number: usize| {
            let host = HostName::parse(&format!("hv-{number}")).unwrap();
            (Source::HostNode, host)
        };
        let (minute, second) = (Duration::from_secs(60), Duration::from_secs(1));
        let labels = Fact::Known(HostLabels::default());
        let mut kept = KeptLabels::default();
        for (number, uptime) in (0..=KEPT_MAX).zip(1..) {
            kept.keep(about(number), &labels, second * uptime, minute);
        }
        assert_eq!(kept.get(&about(0), second), None);
        assert_eq!(kept.get(&about(1), minute), Some(&labels));
        assert_eq!(kept.get(&about(1), minute + 2 * second), None);
        let vmi: Vmi = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
            "status": {"nodeName": "hv-2"},
        }))
        .unwrap();
        // What is doubted is what was read for the VM.
        kept.doubt(&vmi);
        assert_eq!(kept.get(&about(2), minute), Some(&labels));
        let settings = Settings::default();
        kept.start(&about(2).1, &settings);
        kept.doubt(&vmi);
        assert_eq!(kept.get(&about(2), minute), None);
        let refused = Fact::failed(UnavailableKind::Forbidden, "nodes is forbidden");
        kept.keep(about(2), &refused, second, minute);
        kept.start(&about(2).1, &settings);
        kept.doubt(&vmi);
        assert_eq!(kept.get(&about(2), minute), Some(&refused));
        kept.forget_refusals();
        assert_eq!(kept.get(&about(3), minute), Some(&labels));
        kept.start(&about(3).1, &settings);
        kept.forget_labels();
        assert_eq!(kept.get(&about(3), minute), None);
        assert_eq!(kept.about, None);
    }

    #[test]
    fn what_is_not_answered_in_time_fails_and_what_is_stays() {
        let vmi: Vmi = serde_json::from_value(serde_json::json!({
            "metadata": {"name": "vm", "namespace": "default", "uid": "u"},
            "status": {"nodeName": "hv-a"},
        }))
        .unwrap();
        let located = Located {
            host: HostName::parse("hv-a").unwrap(),
            host_source: HostSource::Harvester(&vmi),
            pod: None,
        };
        let settings = Settings::default();
        let failed = Fact::failed(UnavailableKind::Unreachable, "timeout");
        for answered in [None, Some(Fact::Absent)] {
            let mut kept = KeptLabels::default();
            kept.start(&located.host, &settings);
            let mut choice = Choice::new(&settings, &located);
            let wanted = choice.wants().expect("a source is asked");
            kept.current
                .extend(answered.clone().map(|answer| (wanted, answer)));
            kept.give_up(&mut choice, &failed);
            assert_eq!(choice.wants(), None);
            let answer = kept.current.get(&wanted);
            assert_eq!(answer, Some(&answered.unwrap_or(failed.clone())));
        }
    }

    #[test]
    fn the_answers_about_another_host_or_for_other_settings_are_never_used() {
        let host = |name| HostName::parse(name).unwrap();
        let mut settings = Settings::default();
        let mut kept = KeptLabels::default();
        kept.start(&host("hv-a"), &settings);
        let labels = Fact::Known(HostLabels::default());
        kept.current.insert(Source::HostNode, labels);
        kept.start(&host("hv-a"), &settings);
        assert_eq!(kept.current.len(), 1);
        settings.topology.sources.pop();
        kept.start(&host("hv-a"), &settings);
        assert!(kept.current.is_empty());
        kept.current.insert(Source::HostNode, Fact::Absent);
        kept.start(&host("hv-b"), &settings);
        assert!(kept.current.is_empty());
        kept.current.insert(Source::HostNode, Fact::Absent);
        kept.forget_current();
        kept.start(&host("hv-b"), &settings);
        assert!(kept.current.is_empty());
    }
}
