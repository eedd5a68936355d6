//! Ratios from interleaved pairs.

use serde::Serialize;

use super::BarError;

/// Spread above which a median says nothing.
const NOISY_SHARE: f64 = 0.15;

/// Median and quartiles of the ratios.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) low: f64,
    pub(crate) high: f64,
    /// Distance of the quartiles as a share of the median.
    pub(crate) iqr_share: f64,
    pub(crate) count: usize,
}

impl Spread {
    /// Of at least one value.
    pub(crate) fn of(values: &[f64]) -> Spread {
        assert!(!values.is_empty(), "a spread has values");
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (low, median, high) = (quantile(&sorted, 0.25), quantile(&sorted, 0.5), quantile(&sorted, 0.75));
        Spread { median, low, high, iqr_share: (high - low) / median.abs().max(f64::MIN_POSITIVE), count: values.len() }
    }

    /// Whether the values lie too far apart.
    pub(crate) fn is_noisy(&self) -> bool {
        self.iqr_share > NOISY_SHARE
    }
}

/// The value at a quantile of sorted values, between neighbours where it falls between them.
fn quantile(sorted: &[f64], quantile: f64) -> f64 {
    let at = quantile * (sorted.len() - 1) as f64;
    let (below, share) = (at.floor() as usize, at.fract());
    let above = (below + 1).min(sorted.len() - 1);
    sorted[below] + (sorted[above] - sorted[below]) * share
}

/// The median of values.
pub(crate) fn median(values: impl IntoIterator<Item = f64>) -> f64 {
    let values: Vec<f64> = values.into_iter().collect();
    if values.is_empty() { f64::NAN } else { Spread::of(&values).median }
}

/// Both sides of each pair.
#[derive(Debug)]
pub(crate) struct Pairs<A, B> {
    pub(crate) ours: Vec<A>,
    pub(crate) theirs: Vec<B>,
}

/// Measures both sides in turn; every other pair begins with the other side.
pub(crate) fn interleave<A, B>(
    pairs: u32,
    mut ours: impl FnMut() -> Result<A, BarError>,
    mut theirs: impl FnMut() -> Result<B, BarError>,
) -> Result<Pairs<A, B>, BarError> {
    let mut found = Pairs { ours: Vec::new(), theirs: Vec::new() };
    for pair in 0..pairs {
        if pair % 2 == 0 {
            found.ours.push(ours()?);
            found.theirs.push(theirs()?);
        } else {
            found.theirs.push(theirs()?);
            found.ours.push(ours()?);
        }
    }
    Ok(found)
}

impl<A, B> Pairs<A, B> {
    /// The spread of ours / theirs.
    pub(crate) fn spread(&self, ours: impl Fn(&A) -> f64, theirs: impl Fn(&B) -> f64) -> Spread {
        let ratios: Vec<f64> = self.ours.iter().zip(&self.theirs).map(|(a, b)| ours(a) / theirs(b)).collect();
        Spread::of(&ratios)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_quartiles_of_few_values() {
        let spread = Spread::of(&[1.0, 1.1, 0.9, 1.0, 5.0]);
        assert_eq!((spread.median, spread.low, spread.high, spread.count), (1.0, 1.0, 1.1, 5));
        assert!(!spread.is_noisy());
        assert!(Spread::of(&[1.0, 2.0, 3.0]).is_noisy());
        assert_eq!(Spread::of(&[2.0]).iqr_share, 0.0);
        assert_eq!(median([3.0, 1.0]), 2.0);
    }

    #[test]
    fn pairs_alternate_which_side_comes_first() {
        let order = std::cell::RefCell::new(String::new());
        let side = |name: char| {
            order.borrow_mut().push(name);
            Ok(1.0)
        };
        let pairs = interleave(3, || side('a'), || side('b')).unwrap();
        assert_eq!(*order.borrow(), "abbaab");
        assert_eq!(pairs.spread(|a| *a, |b| *b).median, 1.0);
    }
}
