// SPDX-License-Identifier: Apache-2.0
//! The table of a run: printed for people, written as JSON for comparison with other runs.

use std::fmt::Write;

use serde_json::{Value, json};

/// Wide enough for the longest name.
const NAME_WIDTH: usize = 58;

/// One figure.
#[derive(Debug, Clone)]
pub(crate) struct Figure {
    name: String,
    unit: &'static str,
    value: Option<f64>,
    target: Option<f64>,
    beside: Option<(f64, &'static str)>,
    note: String,
}

impl Figure {
    /// A measured figure. No value is a figure that could not be measured; its note says why.
    pub(crate) fn new(
        name: impl Into<String>,
        value: impl Into<Option<f64>>,
        unit: &'static str,
    ) -> Self {
        Self {
            name: name.into(),
            unit,
            value: value.into(),
            target: None,
            beside: None,
            note: String::new(),
        }
    }

    /// The most that it should be.
    pub(crate) fn target(mut self, most: f64) -> Self {
        self.target = Some(most);
        self
    }

    /// The same figure of something else, measured in the same run.
    pub(crate) fn beside(mut self, value: Option<f64>, what: &'static str) -> Self {
        self.beside = value.map(|value| (value, what));
        self
    }

    /// What a reader must know to read it right.
    pub(crate) fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }

    /// Ours divided by the other's; none where the other's is zero.
    fn ratio(&self) -> Option<f64> {
        let (other, _) = self.beside?;
        self.value
            .filter(|_| other > 0.0)
            .map(|value| value / other)
    }

    /// What it is called.
    #[allow(dead_code, reason = "not all programs that share this file ask")]
    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Whether it is as good as it should be, where that is known.
    pub(crate) fn is_met(&self) -> Option<bool> {
        Some(self.value? <= self.target?)
    }
}

/// All figures of a run.
pub(crate) fn print(figures: &[Figure]) -> String {
    let mut text = format!(
        "{:<NAME_WIDTH$} {:>9} {:<6} {:>8} {:<6} {:>9} {:<11} {:>7}\n",
        "figure", "value", "unit", "target", "met", "beside", "of", "ratio"
    );
    for figure in figures {
        let met = match figure.is_met() {
            Some(true) => "yes",
            Some(false) => "NO",
            None => "",
        };
        let (other, what) = figure.beside.unzip();
        let _ = writeln!(
            text,
            "{:<NAME_WIDTH$} {:>9} {:<6} {:>8} {met:<6} {:>9} {:<11} {:>7}",
            figure.name,
            figure.value.map_or("-".to_owned(), number),
            figure.unit,
            figure.target.map(number).unwrap_or_default(),
            other.map(number).unwrap_or_default(),
            what.unwrap_or_default(),
            figure
                .ratio()
                .map(|ratio| format!("{ratio:.2}x"))
                .unwrap_or_default(),
        );
    }
    for figure in figures.iter().filter(|figure| !figure.note.is_empty()) {
        let _ = writeln!(text, "  {}: {}", figure.name, figure.note);
    }
    text
}

/// The same for programs.
pub(crate) fn to_json(figures: &[Figure]) -> Value {
    figures
        .iter()
        .map(|figure| {
            json!({
                "name": figure.name,
                "unit": figure.unit,
                "value": figure.value,
                "target": figure.target,
                "met": figure.is_met(),
                "beside": figure.beside.map(|(value, what)| json!({"value": value, "of": what})),
                "ratio": figure.ratio(),
                "note": figure.note,
            })
        })
        .collect()
}

/// Counts without a fraction, small figures with two digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
