//! Virtual GPUs: a hypervisor writes the version of its driver into a capability of the PCI device.

/// A vendor-specific capability.
const VENDOR: u8 = 0x09;
/// Where the list of capabilities begins.
const FIRST: usize = 0x34;
/// Where records begin inside the capability.
const RECORDS: usize = 5;
/// Length of each of the two texts.
const TEXT: usize = 10;

/// The driver of the host of a virtual GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostDriver {
    /// Such as `460.16`.
    pub version: String,
    /// Such as `r460_00`.
    pub branch: String,
}

/// What the configuration of a PCI device says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum VgpuKind {
    /// It is no virtual GPU.
    Physical,
    /// It is one, and maybe says whose.
    Virtual(Option<HostDriver>),
    /// Without privileges only a part of the configuration can be read: no one knows.
    Unknown,
}

/// Reads the configuration of a PCI device of NVIDIA.
pub(super) fn read(config: &[u8]) -> VgpuKind {
    if config.len() < 256 {
        return VgpuKind::Unknown;
    }
    match capability(config) {
        Some(capability) if capability.get(3..5) == Some(b"VF") => VgpuKind::Virtual(host_driver(capability)),
        _ => VgpuKind::Physical,
    }
}

/// The vendor's capability, of the length that it says.
fn capability(config: &[u8]) -> Option<&[u8]> {
    let mut at = usize::from(*config.get(FIRST)?);
    // Each one is four bytes at least: a longer walk goes in circles.
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

/// Records are an id, their length with these two bytes, and data; that of id 0 holds the driver of the host.
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

    /// The configuration of a device with this vendor capability behind another one.
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
