// SPDX-License-Identifier: Apache-2.0
//! Medians and maxima of a handful of samples.

/// Samples of one figure.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// The middle one; the mean of the two in the middle of an even number.
    pub(crate) fn median(&self) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        let upper = *sorted.get(middle)?;
        if sorted.len() % 2 == 1 {
            return Some(upper);
        }
        Some((sorted[middle - 1] + upper) / 2.0)
    }

    /// The largest.
    pub(crate) fn max(&self) -> Option<f64> {
        self.0.iter().copied().max_by(f64::total_cmp)
    }

    /// One more.
    pub(crate) fn push(&mut self, sample: f64) {
        self.0.push(sample);
    }
}
