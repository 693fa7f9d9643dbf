//! A bar of block characters.

const EIGHTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];

/// A bar of `share` (0 to 1) of `width` columns, in eighths of a column; what is not nothing shows at least one.
pub fn bar(share: f64, width: usize) -> String {
    let eighths = (share.clamp(0.0, 1.0) * (width * 8) as f64).ceil() as usize;
    let full = EIGHTHS[7].to_string().repeat(eighths / 8);
    match eighths % 8 {
        0 => full,
        part => format!("{full}{}", EIGHTHS[part - 1]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_grow_by_eighths() {
        assert_eq!([0.0, 1e-9, 0.25, 0.5, 1.0, f64::NAN].map(|share| bar(share, 4)), ["", "▏", "█", "██", "████", ""]);
        assert_eq!(bar(0.3, 4), "█▎");
    }
}
