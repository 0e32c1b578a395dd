//! Human-readable sizes.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size(pub u64);

/// Units, by suffix.
const UNITS: &[(&str, u64)] = &[
    ("GiB", 1 << 30),
    ("MiB", 1 << 20),
    ("KiB", 1 << 10),
    ("GB", 1_000_000_000),
    ("MB", 1_000_000),
    ("KB", 1_000),
    ("B", 1),
];

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is no size: write one such as 50MiB");
        let unit = UNITS.iter().find_map(|(unit, bytes)| Some((text.strip_suffix(unit)?, *bytes)));
        let (number, bytes) = unit.unwrap_or((text, 1));
        let number: u64 = number.trim().parse().map_err(|_| wrong())?;
        number.checked_mul(bytes).filter(|size| *size > 0).map(Self).ok_or_else(wrong)
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            0..1024 => write!(f, "{} B", self.0),
            1024..1_048_576 => write!(f, "{:.1} KiB", self.0 as f64 / 1024.0),
            _ => write!(f, "{:.1} MiB", self.0 as f64 / 1_048_576.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_with_and_without_a_unit() {
        assert_eq!("50MiB".parse(), Ok(Size(52_428_800)));
        assert_eq!("2 KB".parse(), Ok(Size(2000)));
        assert_eq!("77".parse(), Ok(Size(77)));
        for text in ["", "MiB", "-1", "0", "many", "99999999999GiB"] {
            let error = text.parse::<Size>().unwrap_err();
            assert!(error.contains("50MiB"), "{error}");
        }
    }
}
