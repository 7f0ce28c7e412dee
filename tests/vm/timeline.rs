// SPDX-License-Identifier: Apache-2.0
//! One migration as a picture: who does what when, from the moment at which QEMU pauses the machine.

use std::fmt::Write;

/// Something that happens in a migration.
#[derive(Debug, Clone)]
pub struct Step {
    /// Who does it.
    pub actor: &'static str,
    pub what: &'static str,
    /// Milliseconds since QEMU paused the machine.
    pub at: f64,
}

const WIDTH: usize = 880;
const LEFT: usize = 150;
const TOP: usize = 66;
const ROW: usize = 30;

/// The picture as SVG: a row for each step in the order of time. Times lie too far apart for an axis of one scale, so the distance
/// of two rows says nothing; each has its time.
pub fn svg(title: &str, mut steps: Vec<Step>) -> String {
    steps.sort_by(|one, other| one.at.total_cmp(&other.at));
    let height = TOP + ROW * steps.len();
    let bottom = height - ROW + 6;
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"#fff\"/>\n\
         <text x=\"16\" y=\"26\" font-size=\"15\" fill=\"#222\">{title}</text>\n\
         <path d=\"M{LEFT} {}V{bottom}\" stroke=\"#999\"/>\n",
        TOP - 12
    );
    let mut before = None;
    for (index, step) in steps.iter().enumerate() {
        let (y, left) = (TOP + ROW * index, LEFT + 18);
        let color = if step.actor == "agent" {
            "#0a7d36"
        } else {
            "#555"
        };
        let since = before.map_or(0.0, |before| step.at - before);
        let _ = writeln!(
            text,
            "<circle cx=\"{LEFT}\" cy=\"{}\" r=\"5\" fill=\"{color}\"/>\
             <text x=\"{}\" y=\"{y}\" text-anchor=\"end\" fill=\"#222\">{:.0} ms</text>\
             <text x=\"{left}\" y=\"{y}\" fill=\"{color}\">{}</text>\
             <text x=\"{}\" y=\"{y}\" fill=\"#222\">{}</text>\
             <text x=\"{}\" y=\"{y}\" text-anchor=\"end\" fill=\"#777\">+{since:.0} ms</text>",
            y - 4,
            LEFT - 18,
            step.at,
            step.actor,
            left + 150,
            step.what,
            WIDTH - 16,
        );
        before = Some(step.at);
    }
    text.push_str("</svg>\n");
    text
}
