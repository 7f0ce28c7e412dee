// SPDX-License-Identifier: Apache-2.0
//! Plays the stories and prints what was measured: a table, and a line for each story that `tests/run` counts.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::agents::Trees;
use super::gates::{Shape, broken, halving};
use super::record::Kind;
use super::scenarios::{Outcome, Story, play};

/// Stories are played on so many threads.
const THREADS: usize = 2;

pub(super) fn variable(name: &str) -> Option<String> {
    std::env::var_os(name)?.into_string().ok()
}

/// The number of agents, the directory of the table, and the stories, as `tests/fleet/run` gives them.
fn wanted() -> Option<(usize, PathBuf, VecDeque<Story>)> {
    let agents = variable("FLEET_AGENTS")?.parse().ok()?;
    let directory = variable("FLEET_DIRECTORY")?.into();
    let only = variable("FLEET_ONLY").unwrap_or_default();
    let is_wanted =
        |story: &Story| only.is_empty() || only.split(',').any(|name| name == story.name());
    Some((
        agents,
        directory,
        Story::ALL.into_iter().filter(is_wanted).collect(),
    ))
}

#[test]
#[ignore = "tests/fleet/run runs it"]
fn stories() {
    let (agents, directory, stories) = wanted().expect("the variables that tests/fleet/run sets");
    let order: Vec<String> = stories.iter().map(|story| story.name()).collect();
    let queue = Mutex::new(stories);
    let outcomes = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let trees = Arc::new(Trees::write(agents));
                loop {
                    let next = queue
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .pop_front();
                    let Some(story) = next else { return };
                    let began = Instant::now();
                    let outcome = play(story, agents, &trees);
                    let took = began.elapsed();
                    eprintln!("{} played in {:.1} s", story.name(), took.as_secs_f64());
                    outcomes
                        .lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(outcome);
                }
            });
        }
    });
    let mut outcomes = outcomes
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    outcomes.sort_by_key(|outcome| order.iter().position(|name| *name == outcome.story.name()));
    let mut text = table(&outcomes);
    text.push_str(&super::idle::day());
    print!("{text}");
    fs::write(directory.join("table.txt"), &text).expect("the directory is writable");
}

fn seconds(duration: Option<Duration>) -> String {
    duration.map_or("-".to_owned(), |duration| {
        format!("{:.1}", duration.as_secs_f64())
    })
}

/// The part of sorted times below which so many percent lie.
fn percentile(times: &[Duration], percent: usize) -> Option<Duration> {
    let last = times.len().checked_sub(1)?;
    times.get(last * percent / 100).copied()
}

fn labeled(times: &[Option<Duration>]) -> String {
    if times.is_empty() {
        return "-".to_owned();
    }
    let mut known: Vec<Duration> = times.iter().flatten().copied().collect();
    known.sort();
    let never = times.len() - known.len();
    let of = |percent| {
        percentile(&known, percent)
            .map_or("-".to_owned(), |time| format!("{:.2}", time.as_secs_f64()))
    };
    let never = if never > 0 {
        format!(" never {never}")
    } else {
        String::new()
    };
    format!("{}/{}/{}{never}", of(50), of(99), of(100))
}

fn table(outcomes: &[Outcome]) -> String {
    let mut text = String::new();
    let _ = writeln!(
        text,
        "{:<20} {:>6} {:>6} {:>6} {:>7} {:>7} {:>6} {:>7} {:>6} {:>6} {:>6} {:>6} {:>6} {:>6}  label s p50/p99/max (hinted; unhinted)",
        "scenario",
        "peak/s",
        "mean/s",
        "ratio",
        "dials",
        "GET",
        "LIST",
        "WATCH",
        "PATCH",
        "POST",
        "429 %",
        "back s",
        "hurry",
        "beside"
    );
    for outcome in outcomes {
        let shape = Shape::of(outcome);
        let all = outcome.sum(super::record::Second::all).max(1);
        let shed = f64::from(outcome.sum(|second| second.shed)) / f64::from(all) * 100.0;
        let _ = writeln!(
            text,
            "{:<20} {:>6.0} {:>6.0} {:>6.2} {:>7} {:>7} {:>6} {:>7} {:>6} {:>6} {:>6.1} {:>6} {:>6} {:>6}  {}; {}",
            outcome.story.name(),
            shape.peak,
            shape.mean,
            shape.ratio(),
            outcome.total(Kind::Dial),
            outcome.total(Kind::Get),
            outcome.total(Kind::List),
            outcome.total(Kind::Watch),
            outcome.total(Kind::Patch),
            outcome.total(Kind::Create),
            shed,
            seconds(outcome.all_back),
            outcome.hurried,
            outcome.sum(|second| second.unexplained),
            labeled(&outcome.hinted),
            labeled(&outcome.unhinted),
        );
    }
    for outcome in outcomes
        .iter()
        .filter(|outcome| !outcome.story.lasts().is_zero())
    {
        let rates: Vec<String> = halving(outcome)
            .iter()
            .map(|rate| format!("{rate:.0}"))
            .collect();
        if !rates.is_empty() {
            let _ = writeln!(
                text,
                "{}: requests per second in [30 s, 60 s), [60 s, 120 s), ...: {}",
                outcome.story.name(),
                rates.join(", ")
            );
        }
    }
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    if let Some(line) = status.lines().find(|line| line.starts_with("VmHWM:")) {
        let _ = writeln!(
            text,
            "memory of the simulation: {}",
            line.trim_start_matches("VmHWM:").trim()
        );
    }
    for outcome in outcomes {
        let broken = broken(outcome);
        for gate in &broken {
            let _ = writeln!(text, "{}: {gate}", outcome.story.name());
        }
        let word = if broken.is_empty() { "ok" } else { "FAILED" };
        let _ = writeln!(
            text,
            "test fleet::{} ... {word}",
            outcome.story.name().replace('-', "_")
        );
    }
    text
}
