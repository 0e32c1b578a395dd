//! Virtual GPUs: the hypervisor writes its driver version into a vendor-specific PCI capability.

/// ID of a vendor-specific capability.
const VENDOR: u8 = 0x09;
/// Offset of the capability list pointer.
const FIRST: usize = 0x34;
/// Offset of the records in the capability.
const RECORDS: usize = 5;
/// Length of each of the two strings.
const TEXT: usize = 10;

/// The host driver of a virtual GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDriver {
    /// Such as `460.16`.
    pub version: String,
    /// Such as `r460_00`.
    pub branch: String,
}

/// Result of reading the PCI config space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VgpuKind {
    /// Not a virtual GPU.
    Physical,
    /// A virtual GPU, with the host driver if known.
    Virtual(Option<HostDriver>),
    /// Without privileges only a part of the config space is readable.
    Unknown,
}

/// Reads the config space of an NVIDIA PCI device.
pub(super) fn read(config: &[u8]) -> VgpuKind {
    if config.len() < 256 {
        return VgpuKind::Unknown;
    }
    match capability(config) {
        Some(capability) if capability.get(3..5) == Some(b"VF") => VgpuKind::Virtual(host_driver(capability)),
        _ => VgpuKind::Physical,
    }
}

/// The vendor-specific capability.
fn capability(config: &[u8]) -> Option<&[u8]> {
    let mut at = usize::from(*config.get(FIRST)?);
    // A capability has at least four bytes: a longer walk is a loop.
    for _ in 0..64 {
        if at < 0x40 {
            return None;
        }
        let (id, next) = (*config.get(at)?, *config.get(at + 1)?);
        if id == VENDOR {
            let length = usize::from(*config.get(at + 2)?);
            return config.get(at..(at + length).min(config.len()));
        }
        at = usize::from(next);
    }
    None
}

/// Records are an ID, a length including these two bytes, and data; ID 0 holds the host driver.
fn host_driver(capability: &[u8]) -> Option<HostDriver> {
    let mut at = RECORDS;
    while *capability.get(at)? != 0 {
        let length = usize::from(*capability.get(at + 1)?);
        if length < 2 {
            return None;
        }
        at += length;
    }
    let text = |from: usize| {
        let bytes = capability.get(from..from + TEXT)?;
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(TEXT);
        String::from_utf8(bytes[..end].to_vec()).ok()
    };
    Some(HostDriver { version: text(at + 2)?, branch: text(at + 2 + TEXT)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A config space with this vendor capability behind another one.
    pub(super) fn config(capability: &[u8]) -> Vec<u8> {
        let mut config = vec![0; 256];
        config[FIRST] = 0x40;
        config[0x40..0x42].copy_from_slice(&[0x01, 0x60]);
        config[0x60..0x60 + capability.len()].copy_from_slice(capability);
        config
    }

    fn virtual_gpu() -> Vec<u8> {
        let mut bytes = vec![VENDOR, 0, 0, b'V', b'F', 1, 4, 0xaa, 0xbb, 0, 22];
        bytes.extend(b"460.16\0\0\0\0r460_00\0\0\0");
        bytes[2] = u8::try_from(bytes.len()).expect("short");
        bytes
    }

    #[test]
    fn a_virtual_gpu_says_whose_it_is() {
        let host = HostDriver { version: "460.16".into(), branch: "r460_00".into() };
        assert_eq!(read(&config(&virtual_gpu())), VgpuKind::Virtual(Some(host)));
    }

    #[test]
    fn the_recorded_h200_is_no_virtual_gpu() {
        // Its vendor capability, as read on the machine.
        let capability =
            [0x09, 0xb0, 0x14, 0x01, 0x01, 0x00, 0x13, 0x0b, 0x80, 0, 0, 0, 0xcf, 0x90, 0x1a, 0xb7, 0, 0, 0, 0];
        assert_eq!(read(&config(&capability)), VgpuKind::Physical);
    }

    #[test]
    fn what_is_cut_off_is_not_guessed() {
        assert_eq!(read(&[0; 64]), VgpuKind::Unknown);
        assert_eq!(read(&[0; 256]), VgpuKind::Physical);
        let mut short = virtual_gpu();
        short[2] = 12;
        assert_eq!(read(&config(&short)), VgpuKind::Virtual(None));
        let mut endless = vec![0; 256];
        endless[FIRST] = 0x40;
        endless[0x40..0x42].copy_from_slice(&[0x01, 0x40]);
        assert_eq!(read(&endless), VgpuKind::Physical);
        let mut stuck = virtual_gpu();
        stuck[6] = 0;
        assert_eq!(read(&config(&stuck)), VgpuKind::Virtual(None));
    }

    proptest! {
        #[test]
        fn any_configuration_is_answered(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = read(&bytes);
        }

        #[test]
        fn any_capability_is_answered(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let bytes = [&[VENDOR, 0, 80, b'V', b'F'], &bytes[..]].concat();
            let _ = read(&config(&bytes));
        }
    }
}
