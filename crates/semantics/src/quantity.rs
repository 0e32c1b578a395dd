//! Quantities such as `100m`, `16Gi` or `1e3`: parsing, comparison, arithmetic and Kubernetes' canonical form.

use std::cmp::Ordering;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource;
use serde_json::Value;

/// The API server's error for text that is not a quantity.
pub const MALFORMED: &str =
    "quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'";

const NANO: i128 = 1_000_000_000;
const MAX: i128 = i64::MAX as i128 * NANO;

/// Format of a quantity, as in `resource.Format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// With powers of 1024: `1Gi`.
    Binary,
    /// With powers of 1000: `1G`, `100m`.
    Decimal,
    /// With an exponent: `1e3`.
    Exponent,
}

/// A quantity, exact to 1e-9 (`n`).
#[derive(Clone, Copy, Debug)]
pub struct Quantity {
    nano: i128,
    format: Format,
}

impl Quantity {
    /// Zero.
    pub const ZERO: Self = Self { nano: 0, format: Format::Decimal };

    /// A whole number.
    pub fn of(units: i64) -> Self {
        Self { nano: i128::from(units) * NANO, format: Format::Decimal }
    }

    /// Parses a quantity.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let (negative, rest) = match text.as_bytes().first() {
            Some(b'-') => (true, &text[1..]),
            Some(b'+') => (false, &text[1..]),
            _ => (false, text),
        };
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let (number, suffix) = rest.split_at(end);
        let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
        if whole.len() + fraction.len() == 0 || fraction.contains('.') {
            return Err(MALFORMED);
        }
        let (base, exponent, format) = scale(suffix).ok_or("unable to parse quantity's suffix")?;
        let nano = amount(whole, fraction, base, exponent + 9).min(MAX);
        Ok(Self { nano: if negative { -nano } else { nano }, format })
    }

    /// Parses a quantity from a JSON string or number.
    pub fn from_json(value: &Value) -> Result<Self, &'static str> {
        match value {
            Value::String(text) => Self::parse(text.trim()),
            Value::Number(number) => Self::parse(&number.to_string()),
            _ => Err(MALFORMED),
        }
    }

    /// Whole units, rounded up.
    pub fn units(&self) -> i64 {
        i64::try_from(round_up(self.nano, NANO)).unwrap_or(i64::MAX)
    }

    /// Milli-units, rounded up.
    pub fn milli(&self) -> i64 {
        i64::try_from(round_up(self.nano, NANO / 1000)).unwrap_or(i64::MAX)
    }

    /// Whether it is a whole number.
    pub fn is_whole(&self) -> bool {
        self.nano % NANO == 0
    }

    /// Rounded up to milli-units: resource lists have no finer precision.
    #[must_use]
    pub fn rounded(self) -> Self {
        Self { nano: round_up(self.nano, NANO / 1000) * (NANO / 1000), ..self }
    }

    /// The sum.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        let format = if self.nano == 0 { other.format } else { self.format };
        Self { nano: self.nano.saturating_add(other.nano).min(MAX), format }
    }

    /// The difference.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        let format = if self.nano == 0 { other.format } else { self.format };
        Self { nano: self.nano.saturating_sub(other.nano), format }
    }
}

/// Whole units of a quantity, rounded up; 0 if it is malformed.
pub fn units(amount: &resource::Quantity) -> i64 {
    Quantity::parse(amount.0.trim()).map_or(0, |amount| amount.units())
}

/// Milli-units of a quantity, rounded up; 0 if it is malformed. `cpu` is measured in these.
pub fn milli(amount: &resource::Quantity) -> i64 {
    Quantity::parse(amount.0.trim()).map_or(0, |amount| amount.milli())
}

/// Whole units of a quantity, rounded up; `None` if it is malformed.
pub fn whole(amount: &resource::Quantity) -> Option<i64> {
    Quantity::parse(&amount.0).ok().map(|amount| amount.units())
}

/// Whether a quantity is greater than zero; `None` if it is malformed.
pub fn is_positive(amount: &resource::Quantity) -> Option<bool> {
    Quantity::parse(&amount.0).ok().map(|amount| amount > Quantity::ZERO)
}

/// A quantity in the canonical form that an API server stores: `1.5` is `1500m`, `2048Mi` is `2Gi`. Malformed text is
/// returned unchanged.
pub fn canonical(amount: &resource::Quantity) -> String {
    Quantity::parse(&amount.0).map_or_else(|_| amount.0.clone(), |amount| amount.to_string())
}

/// Factor, power of ten and format of a suffix.
fn scale(suffix: &str) -> Option<(i128, i32, Format)> {
    let decimal = |exponent| Some((1, exponent, Format::Decimal));
    let binary = |power: u32| Some((1_i128 << (10 * power), 0, Format::Binary));
    match suffix {
        "" => decimal(0),
        "n" => decimal(-9),
        "u" => decimal(-6),
        "m" => decimal(-3),
        "k" => decimal(3),
        "M" => decimal(6),
        "G" => decimal(9),
        "T" => decimal(12),
        "P" => decimal(15),
        "E" => decimal(18),
        "Ki" => binary(1),
        "Mi" => binary(2),
        "Gi" => binary(3),
        "Ti" => binary(4),
        "Pi" => binary(5),
        "Ei" => binary(6),
        _ => {
            let exponent: i32 = suffix.strip_prefix(['e', 'E'])?.parse().ok()?;
            Some((1, exponent.clamp(-60, 60), Format::Exponent))
        }
    }
}

/// `whole.fraction × base × 10^exponent`, rounded up and saturating.
fn amount(whole: &str, fraction: &str, base: i128, exponent: i32) -> i128 {
    let mut mantissa: i128 = 0;
    let mut exponent = exponent;
    for (digit, after_point) in whole.bytes().map(|b| (b, false)).chain(fraction.bytes().map(|b| (b, true))) {
        if mantissa > i128::MAX / 10 / (1 << 61) {
            // Beyond the precision of i128: the digit only moves the decimal point.
            exponent += i32::from(!after_point);
            continue;
        }
        mantissa = mantissa * 10 + i128::from(digit - b'0');
        exponent -= i32::from(after_point);
    }
    let value = mantissa.saturating_mul(base);
    let power = 10_i128.checked_pow(exponent.unsigned_abs());
    match (exponent >= 0, power) {
        (true, Some(power)) => value.saturating_mul(power),
        (true, None) if value == 0 => 0,
        (true, None) => i128::MAX,
        (false, Some(power)) => round_up(value, power),
        (false, None) => i128::from(value != 0),
    }
}

/// Division that rounds away from zero.
fn round_up(value: i128, by: i128) -> i128 {
    value / by + (value % by).signum()
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nano == 0 {
            return f.write_str("0");
        }
        let small = self.nano.abs() < 1024 * NANO;
        if self.format == Format::Binary && !small {
            let mut units = round_up(self.nano, NANO);
            let mut power = 0;
            while power < 6 && units % 1024 == 0 {
                units /= 1024;
                power += 1;
            }
            return write!(f, "{units}{}", ["", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"][power]);
        }
        let (mut mantissa, mut exponent) = (self.nano, -9);
        while exponent < 18 && mantissa % 1000 == 0 {
            mantissa /= 1000;
            exponent += 3;
        }
        match (self.format, exponent) {
            (_, 0) => write!(f, "{mantissa}"),
            (Format::Exponent, _) => write!(f, "{mantissa}e{exponent}"),
            _ => {
                let suffixes = ["n", "u", "m", "", "k", "M", "G", "T", "P", "E"];
                write!(f, "{mantissa}{}", suffixes[usize::try_from((exponent + 9) / 3).unwrap_or(0)])
            }
        }
    }
}

impl PartialEq for Quantity {
    fn eq(&self, other: &Self) -> bool {
        self.nano == other.nano
    }
}

impl Eq for Quantity {}

impl PartialOrd for Quantity {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Quantity {
    fn cmp(&self, other: &Self) -> Ordering {
        self.nano.cmp(&other.nano)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn amounts_are_written_in_canonical_form() {
        for (text, canonical) in [
            ("0", "0"),
            ("0m", "0"),
            ("1", "1"),
            ("1000m", "1"),
            ("1500m", "1500m"),
            ("0.5", "500m"),
            (".25", "250m"),
            ("2.", "2"),
            ("100000", "100k"),
            ("12345", "12345"),
            ("1024Mi", "1Gi"),
            ("1.5Gi", "1536Mi"),
            ("0.5Ki", "512"),
            ("1000Ki", "1000Ki"),
            ("1e3", "1e3"),
            ("12e6", "12e6"),
            ("1E", "1E"),
            ("-5", "-5"),
            ("+5", "5"),
            ("100n", "100n"),
            ("0.1n", "1n"),
            ("9223372036854775807", "9223372036854775807"),
            ("99999999999999999999", "9223372036854775807"),
        ] {
            assert_eq!(Quantity::parse(text).unwrap().to_string(), canonical, "{text}");
        }
    }

    #[test]
    fn what_is_no_amount_is_refused() {
        for text in ["", "m", "1.2.3", "one", "1 Gi", "1Zi", "--1", "1mi"] {
            assert!(Quantity::parse(text).is_err(), "{text}");
        }
        assert!(Quantity::from_json(&json!(true)).is_err());
        assert_eq!(Quantity::from_json(&json!(1.5)).unwrap().milli(), 1500);
        assert_eq!(Quantity::from_json(&json!(2)).unwrap().units(), 2);
    }

    #[test]
    fn amounts_are_counted() {
        let parse = |text| Quantity::parse(text).unwrap();
        assert!(parse("1Gi") > parse("1G"));
        assert_eq!(parse("1000m"), parse("1"));
        assert_eq!((parse("1500m").units(), parse("1u").milli()), (2, 1));
        assert_eq!(parse("1u").rounded().to_string(), "1m");
        assert_eq!(parse("1Gi").plus(parse("1Gi")).to_string(), "2Gi");
        assert_eq!(parse("1").minus(parse("1500m")).to_string(), "-500m");
        assert!(!parse("1500m").is_whole());
    }

    #[test]
    fn quantities_are_written_as_kubernetes_writes_them() {
        let cases = [
            ("1.5", "1500m"),
            ("80", "80"),
            ("2000", "2k"),
            ("40Gi", "40Gi"),
            ("1.5Gi", "1536Mi"),
            ("2048Mi", "2Gi"),
            ("1000Mi", "1000Mi"),
            ("1000m", "1"),
            ("0", "0"),
            ("0.5Gi", "512Mi"),
            ("1e3", "1e3"),
            ("nonsense", "nonsense"),
        ];
        for (text, expected) in cases {
            assert_eq!(canonical(&resource::Quantity(text.into())), expected, "{text}");
        }
    }

    #[test]
    fn quantities_count() {
        for (text, expected) in [("512Mi", Some(536_870_912)), ("80", Some(80)), ("1500m", Some(2)), ("x", None)] {
            assert_eq!(whole(&resource::Quantity(text.into())), expected, "{text}");
        }
        assert_eq!(is_positive(&resource::Quantity("-1Gi".into())), Some(false));
    }

    #[test]
    fn amounts_of_objects_are_counted() {
        let cases = [
            ("1", 1000, 1),
            ("100m", 100, 1),
            ("1500m", 1500, 2),
            ("0.1", 100, 1),
            (".5", 500, 1),
            ("2.", 2000, 2),
            ("1k", 1_000_000, 1000),
            ("1Ki", 1_024_000, 1024),
            ("16Gi", 17_179_869_184_000, 17_179_869_184),
            ("1.5Gi", 1_610_612_736_000, 1_610_612_736),
            ("1e3", 1_000_000, 1000),
            ("1E", i64::MAX, 1_000_000_000_000_000_000),
            ("1u", 1, 1),
            ("0", 0, 0),
            ("-1", -1000, -1),
            ("+2", 2000, 2),
            ("123456789012345678901234567890", i64::MAX, i64::MAX),
            ("1Zi", 0, 0),
            ("", 0, 0),
            ("1.2.3", 0, 0),
        ];
        for (text, thousandths, whole) in cases {
            let quantity = resource::Quantity(text.to_owned());
            assert_eq!((milli(&quantity), units(&quantity)), (thousandths, whole), "{text}");
        }
    }

    proptest! {
        #[test]
        fn writing_loses_nothing(number in -1_000_000_000_000_i64..1_000_000_000_000, suffix in "(|m|u|k|M|Ki|Mi|Gi|e2)") {
            let first = Quantity::parse(&format!("{number}{suffix}")).unwrap();
            let again = Quantity::parse(&first.to_string()).unwrap();
            prop_assert_eq!(first, again);
            prop_assert_eq!(first.to_string(), again.to_string());
        }
    }
}
