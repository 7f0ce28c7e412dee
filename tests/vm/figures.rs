// SPDX-License-Identifier: Apache-2.0
//! What the scenarios measured.

use std::collections::BTreeMap;
use std::path::Path;

use crate::statistics::Samples;
use crate::table::{self, Figure};

/// All figures of a run, in the order in which they were measured first.
#[derive(Debug, Default)]
pub struct Figures {
    table: Vec<Figure>,
    samples: BTreeMap<&'static str, Samples>,
}

impl Figures {
    /// One figure.
    pub(crate) fn add(&mut self, figure: Figure) {
        self.table.push(figure);
    }

    /// Adds what another scenario has measured.
    pub fn append(&mut self, other: Self) {
        self.table.extend(other.table);
    }

    /// One of several samples of a figure in milliseconds.
    pub fn sample(&mut self, name: &'static str, milliseconds: f64) {
        self.samples.entry(name).or_default().push(milliseconds);
    }

    /// Puts median and maximum of the samples of a figure into the table, the median with a target where there is one.
    pub fn summarise(&mut self, name: &'static str, target: Option<f64>, note: &str) {
        let samples = self.samples.remove(name).unwrap_or_default();
        let median = Figure::new(format!("{name}, median"), samples.median(), "ms").note(note);
        let median = match target {
            Some(target) => median.target(target),
            None => median,
        };
        self.add(median);
        self.add(Figure::new(format!("{name}, most"), samples.max(), "ms"));
    }

    /// Writes the table as JSON.
    pub fn write(&self, file: &Path) {
        std::fs::write(file, format!("{:#}\n", table::to_json(&self.table))).unwrap();
    }

    /// The table for people; empty where nothing was measured.
    pub fn print(&self) -> String {
        if self.table.is_empty() {
            return String::new();
        }
        format!("\n{}", table::print(&self.table))
    }
}
