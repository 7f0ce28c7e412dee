// SPDX-License-Identifier: Apache-2.0
//! Requests per second over time, stacked by verb, as an SVG.

use std::fmt::Write as _;

use super::record::Kind;
use super::scenarios::Outcome;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 300.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 40.0;
const RIGHT: f64 = 96.0;
const BOTTOM: f64 = 46.0;

/// Steps of time in one plot, at most.
const STEPS: usize = 200;

/// Seconds shown before the trouble.
const BEFORE: usize = 30;

fn color(kind: Kind) -> &'static str {
    match kind {
        Kind::Dial => "#bdbdbd",
        Kind::Get => "#4e79a7",
        Kind::List => "#e15759",
        Kind::Watch => "#59a14f",
        Kind::Patch => "#f28e2b",
        Kind::Create => "#b07aa1",
    }
}

/// A round number at least as large.
fn round_up(value: f64) -> f64 {
    let magnitude = 10f64.powf(value.max(1.0).log10().floor());
    let steps = [1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 8.0, 10.0];
    let found = steps.into_iter().find(|step| step * magnitude >= value);
    found.unwrap_or(10.0) * magnitude
}

/// Draws.
pub(super) fn svg(outcome: &Outcome) -> String {
    let from = outcome.begins.saturating_sub(BEFORE);
    let seconds = outcome.record.range(from, outcome.last);
    let step = seconds.len().div_ceil(STEPS).max(1);
    // Of a step the second with the most arrivals is shown: a mean would hide a peak.
    let shown: Vec<_> = seconds
        .chunks(step)
        .filter_map(|chunk| chunk.iter().max_by_key(|second| second.all()))
        .collect();
    let peak = shown.iter().map(|second| second.all()).max().unwrap_or(1);
    let top = round_up(f64::from(peak));
    let (inner_width, inner_height) = (WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM);
    let x = |index: usize| LEFT + inner_width * index as f64 / shown.len().max(1) as f64;
    let y = |value: f64| TOP + inner_height * (1.0 - value / top);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"{LEFT}\" y=\"22\" font-size=\"14\" fill=\"#222\">{} agents: {}</text>\n",
        outcome.agents,
        outcome.story.title()
    );
    for part in 0..=4 {
        let value = top * f64::from(part) / 4.0;
        let at = y(value);
        let _ = writeln!(
            svg,
            "<path d=\"M{LEFT} {at:.1}H{:.1}\" stroke=\"#e4e4e4\"/><text x=\"{:.0}\" y=\"{:.1}\" text-anchor=\"end\" fill=\"#555\">{value:.0}</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0
        );
    }
    let every = [30, 60, 120, 300, 600, 900];
    let every = every.into_iter().find(|every| seconds.len() / every <= 9);
    let every = every.unwrap_or(900);
    let begins = outcome.begins - from;
    for second in
        (0..seconds.len()).filter(|second| (second + every - begins % every).is_multiple_of(every))
    {
        let at = x(second / step);
        let label = second as i64 - begins as i64;
        let _ = writeln!(
            svg,
            "<text x=\"{at:.1}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#555\">{label}</text>",
            HEIGHT - BOTTOM + 16.0
        );
    }
    let mut below = vec![0u32; shown.len()];
    for (place, kind) in Kind::ALL.into_iter().enumerate() {
        let above: Vec<u32> = below
            .iter()
            .zip(&shown)
            .map(|(below, second)| below + second.of(kind))
            .collect();
        if above != below {
            let mut path = String::new();
            for (index, value) in above.iter().enumerate() {
                let command = if index == 0 { 'M' } else { 'L' };
                let (from, to, height) = (x(index), x(index + 1), y(f64::from(*value)));
                let _ = write!(path, "{command}{from:.0} {height:.1}H{to:.0}");
            }
            for (index, value) in below.iter().enumerate().rev() {
                let (from, to, height) = (x(index), x(index + 1), y(f64::from(*value)));
                let _ = write!(path, "L{to:.0} {height:.1}H{from:.0}");
            }
            let _ = writeln!(svg, "<path d=\"{path}Z\" fill=\"{}\"/>", color(kind));
        }
        below = above;
        let at = TOP + 14.0 + 18.0 * place as f64;
        let _ = writeln!(
            svg,
            "<rect x=\"{:.0}\" y=\"{:.0}\" width=\"10\" height=\"10\" fill=\"{}\"/><text x=\"{:.0}\" y=\"{:.0}\" fill=\"#222\">{}</text>",
            WIDTH - RIGHT + 12.0,
            at - 9.0,
            color(kind),
            WIDTH - RIGHT + 28.0,
            at,
            kind.name()
        );
    }
    let mut marks = vec![begins];
    marks.extend((outcome.ends > outcome.begins).then(|| outcome.ends - from));
    for mark in marks {
        let at = x(mark / step);
        let _ = writeln!(
            svg,
            "<path d=\"M{at:.1} {TOP}V{:.0}\" stroke=\"#222\" stroke-dasharray=\"3 3\"/>",
            HEIGHT - BOTTOM
        );
    }
    let bin = match step {
        1 => "requests per second".to_owned(),
        _ => format!("requests per second (most of each {step} s)"),
    };
    let _ = write!(
        svg,
        "<path d=\"M{LEFT} {TOP}V{:.0}H{:.0}\" fill=\"none\" stroke=\"#555\"/>\n\
         <text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#222\">seconds since the event</text>\n\
         <text transform=\"translate(14 {:.0}) rotate(-90)\" text-anchor=\"middle\" fill=\"#222\">{bin}</text>\n</svg>\n",
        HEIGHT - BOTTOM,
        WIDTH - RIGHT,
        LEFT + inner_width / 2.0,
        HEIGHT - 10.0,
        TOP + inner_height / 2.0
    );
    svg
}
