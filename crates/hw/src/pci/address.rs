//! PCI addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A PCI address as in sysfs: `0000:65:00.0`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PciAddress(String);

impl PciAddress {
    /// Parses any spelling: NVML writes eight digits of domain in upper case, sysfs four in lower case.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let mut parts = text.split(':').rev();
        let (slot, bus, domain) = (parts.next()?, parts.next()?, parts.next().unwrap_or("0"));
        let (device, function) = slot.split_once('.')?;
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let (domain, bus, device, function) = (hex(domain)?, hex(bus)?, hex(device)?, hex(function)?);
        let whole = parts.next().is_none() && bus <= 0xff && device <= 0x1f && function <= 7;
        whole.then(|| Self(format!("{domain:04x}:{bus:02x}:{device:02x}.{function}")))
    }

    /// As in sysfs.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The address this many functions further, for VF offsets; `None` past the last bus.
    pub fn offset(&self, functions: u32) -> Option<Self> {
        let (domain, rest) = self.0.split_once(':')?;
        let (bus, slot) = rest.split_once(':')?;
        let (device, function) = slot.split_once('.')?;
        let hex = |text: &str| u32::from_str_radix(text, 16).ok();
        let here = hex(bus)? << 8 | hex(device)? << 3 | hex(function)?;
        let there = here.checked_add(functions)?;
        Self::parse(&format!("{domain}:{:x}:{:x}.{}", there >> 8, there >> 3 & 0x1f, there & 7))
    }

    /// As in NVML and metrics: eight digits of domain, upper case.
    pub fn long(&self) -> String {
        let (domain, rest) = self.0.split_once(':').unwrap_or(("0", &self.0));
        format!("{:0>8}:{}", domain, rest).to_ascii_uppercase()
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_spellings_of_a_bus_address_are_one() {
        let cases = [
            ("00000000:65:00.0", Some("0000:65:00.0")),
            ("0000:65:00.0", Some("0000:65:00.0")),
            ("65:00.0", Some("0000:65:00.0")),
            ("0000000A:C1:1F.7", Some("000a:c1:1f.7")),
            ("10000:01:00.0", Some("10000:01:00.0")),
            ("0000:65:00", None),
            ("0000:65:20.0", None),
            ("1:0000:65:00.0", None),
            ("", None),
            ("x:y:z.w", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(PciAddress::parse(text).as_ref().map(PciAddress::as_str), wanted, "{text}");
        }
        assert_eq!(PciAddress::parse("0000:c1:00.0").map(|at| at.long()).as_deref(), Some("00000000:C1:00.0"));
    }

    proptest::proptest! {
        #[test]
        fn an_address_is_read_as_it_is_written(domain in 0u32..0x1_0000, bus in 0u32..0x100, device in 0u32..0x20, function in 0u32..8) {
            let at = PciAddress::parse(&format!("{domain:08X}:{bus:02X}:{device:02X}.{function}")).expect("an address");
            proptest::prop_assert_eq!(PciAddress::parse(at.as_str()), Some(at.clone()));
            proptest::prop_assert_eq!(PciAddress::parse(&at.long()), Some(at));
        }

        #[test]
        fn any_text_is_answered(text in ".{0,24}") {
            let _ = PciAddress::parse(&text);
        }
    }
}
