//! Whether counts fit a distribution: Pearson's chi-square over pooled bins.

/// The chance that a test of a right sampler fails. A file with n such tests has a false alarm of at most n times that;
/// as seeds are fixed, it would show once, on the day a test is written, and never after.
pub const FALSE_ALARM: f64 = 1e-6;

/// Expected counts are pooled, in the order of ids, up to at least this.
const POOL: f64 = 8.0;

/// The chance of counts at least as far from `probabilities` as these, if they came from there.
///
/// `probabilities` are scaled to the sum 1. A count where the probability is 0 gives 0.
pub fn p_value(counts: &[u64], probabilities: &[f64]) -> f64 {
    assert_eq!(counts.len(), probabilities.len());
    if counts.iter().zip(probabilities).any(|(count, p)| *count > 0 && *p <= 0.0) {
        return 0.0;
    }
    let draws = counts.iter().sum::<u64>() as f64;
    let sum: f64 = probabilities.iter().sum();
    let bins = pooled(counts, probabilities, draws / sum);
    if bins.len() < 2 {
        return 1.0;
    }
    let statistic: f64 = bins.iter().map(|(count, expected)| (count - expected).powi(2) / expected).sum();
    upper_tail(statistic, (bins.len() - 1) as f64)
}

/// Bins of (count, expected count); what is left over at the end joins the last bin.
fn pooled(counts: &[u64], probabilities: &[f64], scale: f64) -> Vec<(f64, f64)> {
    let mut bins = Vec::new();
    let mut open = (0.0, 0.0);
    for (count, p) in counts.iter().zip(probabilities) {
        open = (open.0 + *count as f64, open.1 + p * scale);
        if open.1 >= POOL {
            bins.push(std::mem::take(&mut open));
        }
    }
    match bins.last_mut() {
        Some(last) => *last = (last.0 + open.0, last.1 + open.1),
        None => bins.push(open),
    }
    bins
}

/// P(X ≥ statistic) for X chi-square with `freedom` degrees, by Wilson and Hilferty's normal approximation, which is on the
/// careful side in the far tail of few degrees (1.2e-4 for 1e-4 at ten).
pub fn upper_tail(statistic: f64, freedom: f64) -> f64 {
    let spread = 2.0 / (9.0 * freedom);
    normal_tail(((statistic / freedom).cbrt() - (1.0 - spread)) / spread.sqrt())
}

/// P(Z ≥ z), by the continued fraction beyond 3 and by the series of the density below.
fn normal_tail(z: f64) -> f64 {
    if z < 0.0 {
        return 1.0 - normal_tail(-z);
    }
    let density = (-z * z / 2.0).exp() / std::f64::consts::TAU.sqrt();
    if z > 3.0 {
        let fraction = (1..=60).rev().fold(z, |below, k| z + f64::from(k) / below);
        return density / fraction;
    }
    let (mut term, mut sum) = (z, z);
    for k in 1..100 {
        term *= z * z / f64::from(2 * k + 1);
        sum += term;
    }
    0.5 - density * sum
}

/// Whether two numbers of the same draw are independent: counts `[a][b]` against the product of their margins.
pub fn independence_p_value(counts: &[Vec<u64>]) -> f64 {
    let rows: Vec<f64> = counts.iter().map(|row| row.iter().sum::<u64>() as f64).collect();
    let columns: Vec<f64> = (0..counts[0].len()).map(|j| counts.iter().map(|row| row[j]).sum::<u64>() as f64).collect();
    let draws: f64 = rows.iter().sum();
    let mut statistic = 0.0;
    for (row, in_row) in counts.iter().zip(&rows) {
        for (count, in_column) in row.iter().zip(&columns) {
            let expected = in_row * in_column / draws;
            assert!(expected >= 5.0, "too few draws for this table");
            statistic += (*count as f64 - expected).powi(2) / expected;
        }
    }
    upper_tail(statistic, ((rows.len() - 1) * (columns.len() - 1)) as f64)
}
