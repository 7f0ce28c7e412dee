// SPDX-License-Identifier: Apache-2.0
//! Draws the output of a program as an SVG in which each line appears when it was printed: a terminal recording that needs no
//! JavaScript.

use std::fmt::Write;

/// The width of one character and the height of one line, in pixels.
const CHARACTER: f64 = 7.25;
const LINE: f64 = 17.0;
/// The space around the text.
const MARGIN: f64 = 14.0;
/// The longest line that is drawn; more is cut off.
const COLUMNS: usize = 120;

/// Draws lines of the form `SECONDS<TAB>TEXT`.
///
/// # Errors
///
/// Fails for a line that does not begin with a number of seconds and a tab.
pub(crate) fn draw(title: &str, input: &str) -> Result<String, String> {
    let lines = input
        .lines()
        .map(|line| {
            let parsed = line.split_once('\t');
            let parsed = parsed.and_then(|(at, text)| Some((at.parse::<f64>().ok()?, text)));
            parsed.ok_or_else(|| format!("not SECONDS, a tab and a text: {line}"))
        })
        .collect::<Result<Vec<(f64, &str)>, String>>()?;
    let columns = lines.iter().map(|(_, text)| text.chars().count());
    let columns = columns.max().unwrap_or(0).clamp(40, COLUMNS);
    let width = MARGIN * 2.0 + columns as f64 * CHARACTER;
    let height = MARGIN * 2.0 + (lines.len() + 1) as f64 * LINE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {height:.0}\" role=\"img\" aria-label=\"{title}\" \
         xml:space=\"preserve\" font-family=\"DejaVu Sans Mono, Menlo, monospace\" font-size=\"12\">\n\
         <style>text{{fill:#cbd5e1;white-space:pre;animation:show .01s linear both}}.title{{fill:#94a3b8}}\
         .step{{fill:#f8fafc;font-weight:bold}}.ok{{fill:#86efac}}.warning{{fill:#fcd34d}}\
         @keyframes show{{from{{opacity:0}}to{{opacity:1}}}}\
         @media (prefers-reduced-motion:reduce){{text{{animation:none}}}}</style>\n\
         <rect width=\"100%\" height=\"100%\" rx=\"8\" fill=\"#0f172a\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"{:.0}\">$ {title}</text>\n",
        MARGIN + LINE * 0.7
    );
    for (index, (at, text)) in lines.iter().enumerate() {
        let y = MARGIN + LINE * (index as f64 + 1.7);
        let text = cut(text);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<text{} x=\"{MARGIN}\" y=\"{y:.0}\" style=\"animation-delay:{at:.1}s\">{}</text>",
            class(&text),
            escape(&text)
        );
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

/// Returns the class of a line, which decides its color, as an attribute.
fn class(line: &str) -> &'static str {
    let words = line.trim_start();
    if words.starts_with(|first: char| first.is_ascii_digit()) {
        " class=\"step\""
    } else if words.starts_with("ok: ") || words.starts_with("all steps passed") {
        " class=\"ok\""
    } else if words.starts_with("| warning: ") || words.starts_with("| error: ") {
        " class=\"warning\""
    } else {
        ""
    }
}

/// Returns a line that fits, with an ellipsis if it is too long.
fn cut(text: &str) -> String {
    if text.chars().count() <= COLUMNS {
        return text.to_owned();
    }
    let kept: String = text.chars().take(COLUMNS.saturating_sub(1)).collect();
    format!("{kept}\u{2026}")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_appears_at_its_time_and_is_escaped() {
        let svg = draw("cargo demo", "0.5\ta < b\n2\t\n").unwrap();
        assert!(
            svg.contains("animation-delay:0.5s\">a &lt; b</text>"),
            "{svg}"
        );
        assert!(svg.contains("animation-delay:2.0s"), "{svg}");
        let step = draw("x", "1\t1. a step\n1\t   ok: done\n1\t  | info: x\n").unwrap();
        assert_eq!(step.matches("<text class=").count(), 3, "{step}");
        draw("x", "no time").unwrap_err();
        let long = draw("x", &format!("1\t{}\n", "y".repeat(200))).unwrap();
        assert!(
            long.contains(&format!("{}\u{2026}<", "y".repeat(119))),
            "{long}"
        );
    }
}
