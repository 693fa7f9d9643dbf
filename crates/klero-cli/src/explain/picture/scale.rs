//! Numbers along a line of pixels.

/// Where numbers lie between two x.
#[derive(Clone, Copy, Debug)]
pub struct Scale {
    values: (f64, f64),
    pixels: (f64, f64),
}

impl Scale {
    /// `values` at `pixels`.
    pub fn new(values: (f64, f64), pixels: (f64, f64)) -> Self {
        Self { values, pixels }
    }

    /// So that all of `values` lie between `pixels`, with a little room on both sides.
    pub fn around(values: impl Iterator<Item = f64>, pixels: (f64, f64)) -> Self {
        let (low, high) = values.fold((f64::INFINITY, f64::NEG_INFINITY), |(l, h), value| (l.min(value), h.max(value)));
        let room = if high > low { (high - low) * 0.06 } else { high.abs().max(1.0) * 0.5 };
        Self::new((low - room, high + room), pixels)
    }

    /// The x of a value.
    pub fn at(&self, value: f64) -> f64 {
        let (low, high) = self.values;
        self.left() + (value - low) / (high - low) * (self.right() - self.left())
    }

    /// Where the line begins.
    pub fn left(&self) -> f64 {
        self.pixels.0
    }

    /// Where it ends.
    pub fn right(&self) -> f64 {
        self.pixels.1
    }

    /// Round numbers on the line, at most `most` and at least one, as texts beside their values.
    pub fn ticks(&self, most: usize) -> Vec<(f64, String)> {
        let (low, high) = self.values;
        let power = ((high - low) / most as f64).log10().floor() as i32;
        let steps = [(1.0, power), (2.0, power), (5.0, power), (1.0, power + 1), (2.0, power + 1)];
        let within = |(digit, power): (f64, i32)| {
            let step = digit * 10f64.powi(power);
            ((low / step).ceil(), (high / step).floor(), step, power)
        };
        let fits = |(first, last, ..): &(f64, f64, f64, i32)| last - first < most as f64;
        let (first, last, step, power) = steps.into_iter().map(within).find(fits).unwrap_or((0.0, 0.0, 0.0, 0));
        let decimals = usize::try_from(-power).unwrap_or(0);
        let text = |value: f64| match power {
            6.. if value != 0.0 => format!("{value:.1e}"),
            _ => format!("{:.decimals$}", value + 0.0),
        };
        (0..=(last - first) as usize).map(|i| (first + i as f64) * step).map(|value| (value, text(value))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(values: (f64, f64), most: usize) -> Vec<String> {
        Scale::new(values, (0.0, 100.0)).ticks(most).into_iter().map(|(_, text)| text).collect()
    }

    #[test]
    fn ticks_are_round_and_few() {
        assert_eq!(texts((0.0, 1.0), 3), ["0.0", "0.5", "1.0"]);
        assert_eq!(texts((7.6, 12.1), 5), ["8", "9", "10", "11", "12"]);
        assert_eq!(texts((7.6, 12.1), 4), ["8", "10", "12"]);
        assert_eq!(texts((-0.61, 0.73), 4), ["-0.5", "0.0", "0.5"]);
        assert_eq!(texts((880_432.1, 880_432.4), 4), ["880432.1", "880432.2", "880432.3", "880432.4"]);
        assert_eq!(texts((-3.4e38, 3.4e38), 4), ["-2.0e38", "0", "2.0e38"]);
        for i in 0..2000 {
            let low = f64::from(i * 7919 % 2003) - 1000.0;
            let width = 1.07f64.powi(i % 300) * 1e-4;
            for most in 2..7 {
                let ticks = Scale::new((low, low + width), (0.0, 1.0)).ticks(most);
                assert!((1..=most).contains(&ticks.len()), "{low} {width} {most}: {ticks:?}");
                let around = low - width * 1e-6..=low + width * (1.0 + 1e-6);
                assert!(ticks.iter().all(|(value, _)| around.contains(value)), "{low} {width}: {ticks:?}");
            }
        }
    }

    #[test]
    fn all_values_lie_on_the_line() {
        for values in [&[1.0, 2.0, -3.0][..], &[5.0], &[0.0, 0.0], &[-3.4e38, 3.4e38]] {
            let scale = Scale::around(values.iter().copied(), (10.0, 20.0));
            assert!(values.iter().all(|value| (10.0..=20.0).contains(&scale.at(*value))), "{values:?}");
        }
    }
}
