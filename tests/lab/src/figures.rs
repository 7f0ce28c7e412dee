// SPDX-License-Identifier: Apache-2.0
//! What benchmarks measure: a table for people, and the same as JSON for comparison with other runs.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::time::Duration;

use serde::Serialize;

/// Wide enough for the longest name.
const NAME_WIDTH: usize = 58;

/// Samples of one figure.
#[derive(Debug, Clone, Default)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// The middle one; the mean of the two in the middle of an even number.
    #[must_use]
    pub fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let upper = *sorted.get(sorted.len() / 2)?;
        let lower = *sorted.get((sorted.len() - 1) / 2)?;
        Some(f64::midpoint(lower, upper))
    }

    /// The largest.
    #[must_use]
    pub fn max(&self) -> Option<f64> {
        self.0.iter().copied().max_by(f64::total_cmp)
    }

    /// One more.
    pub fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }
}

/// One figure.
#[derive(Debug, Clone, Serialize)]
pub struct Figure {
    name: String,
    unit: &'static str,
    value: Option<f64>,
    target: Option<f64>,
    beside: Option<(f64, &'static str)>,
    note: String,
}

impl Figure {
    /// A measured figure. No value is a figure that could not be measured; its note says why.
    pub fn new(name: impl Into<String>, value: impl Into<Option<f64>>, unit: &'static str) -> Self {
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
    #[must_use]
    pub fn target(mut self, most: f64) -> Self {
        self.target = Some(most);
        self
    }

    /// The same figure of something else, measured in the same run.
    #[must_use]
    pub fn beside(mut self, value: Option<f64>, what: &'static str) -> Self {
        self.beside = value.map(|value| (value, what));
        self
    }

    /// What a reader must know to read it right.
    #[must_use]
    pub fn note(mut self, note: impl Into<String>) -> Self {
        self.note = note.into();
        self
    }
}

/// All figures of a run, in the order in which they were measured first.
#[derive(Debug, Default)]
pub struct Figures {
    table: Vec<Figure>,
    samples: BTreeMap<&'static str, Samples>,
}

impl Extend<Figure> for Figures {
    fn extend<T: IntoIterator<Item = Figure>>(&mut self, figures: T) {
        self.table.extend(figures);
    }
}

impl Figures {
    /// One figure.
    pub fn add(&mut self, figure: Figure) {
        self.table.push(figure);
    }

    /// Adds what another scenario has measured.
    pub fn append(&mut self, other: Self) {
        self.extend(other.table);
    }

    /// One of several samples of a figure in milliseconds.
    pub fn sample(&mut self, name: &'static str, milliseconds: f64) {
        self.samples.entry(name).or_default().push(milliseconds);
    }

    /// Puts median and maximum of the samples of a figure into the table, the median with a target where there is one.
    pub fn summarise(&mut self, name: &'static str, target: Option<f64>, note: &str) {
        let samples = self.samples.remove(name).unwrap_or_default();
        let median = Figure::new(format!("{name}, median"), samples.median(), "ms").note(note);
        self.add(Figure { target, ..median });
        self.add(Figure::new(format!("{name}, most"), samples.max(), "ms"));
    }

    /// Writes the table as JSON.
    ///
    /// # Panics
    /// When the file cannot be written.
    pub fn write(&self, file: &Path) {
        let json = serde_json::to_vec_pretty(&self.table).expect("figures are plain values");
        std::fs::write(file, json).expect("the file can be written");
    }

    /// The table for people.
    #[must_use]
    pub fn print(&self) -> String {
        let mut text = format!(
            "\n{:<NAME_WIDTH$} {:>9} {:<6} {:>8} {:<6} {:>9} {:<11} {:>7}\n",
            "figure", "value", "unit", "target", "met", "beside", "of", "ratio"
        );
        for figure in &self.table {
            let met = match figure.value.zip(figure.target) {
                Some((value, target)) if value <= target => "yes",
                Some(_) => "NO",
                None => "",
            };
            let (other, what) = figure.beside.unzip();
            let ratio = figure.value.zip(other.filter(|other| *other > 0.0));
            let ratio = ratio.map(|(value, other)| format!("{:.2}x", value / other));
            let _ = writeln!(
                text,
                "{:<NAME_WIDTH$} {:>9} {:<6} {:>8} {met:<6} {:>9} {:<11} {:>7}",
                figure.name,
                figure.value.map_or("-".to_owned(), number),
                figure.unit,
                figure.target.map(number).unwrap_or_default(),
                other.map(number).unwrap_or_default(),
                what.unwrap_or_default(),
                ratio.unwrap_or_default(),
            );
        }
        for Figure { name, note, .. } in self.table.iter().filter(|one| !one.note.is_empty()) {
            let _ = writeln!(text, "  {name}: {note}");
        }
        text
    }
}

/// For the table.
#[must_use]
pub fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Counts without a fraction, small figures with two digits.
fn number(value: f64) -> String {
    if value.fract() == 0.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
