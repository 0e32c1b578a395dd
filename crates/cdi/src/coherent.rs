//! Coherent and non-coherent GPUs, as separate kinds.

use crate::Spec;

/// Annotation of a device: whether it is coherent with host memory.
pub const COHERENT: &str = "gpu.nvidia.com/coherent";

/// Additional specs with the devices of each sort: class `<class>.coherent` and `<class>.noncoherent`. None if the
/// devices are not annotated.
pub fn split_coherent(spec: &Spec) -> Vec<Spec> {
    let sorts = [("true", "coherent"), ("false", "noncoherent")];
    let part = |(value, suffix): (&str, &str)| {
        let mut part = spec.clone();
        part.devices.retain(|device| device.annotations.get(COHERENT).is_some_and(|is| is == value));
        part.kind = format!("{}.{suffix}", spec.kind);
        (!part.devices.is_empty()).then_some(part)
    };
    sorts.into_iter().filter_map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec::Device;

    fn spec(devices: &[(&str, Option<&str>)]) -> Spec {
        let device = |(name, coherent): &(&str, Option<&str>)| {
            let other = [("other".to_owned(), "kept".to_owned())];
            let annotations =
                coherent.map(|is| (COHERENT.to_owned(), is.to_owned())).into_iter().chain(other).collect();
            Device { name: (*name).to_owned(), annotations, ..Device::default() }
        };
        Spec { kind: "nvidia.com/gpu".into(), devices: devices.iter().map(device).collect(), ..Spec::default() }
    }

    fn split(devices: &[(&str, Option<&str>)]) -> Vec<String> {
        let parts = split_coherent(&spec(devices));
        assert!(parts.iter().flat_map(|part| &part.devices).all(|device| device.annotations["other"] == "kept"));
        let names = |part: &Spec| part.devices.iter().map(|device| device.name.clone()).collect::<Vec<_>>().join(",");
        parts.iter().map(|part| format!("{}={}", part.kind, names(part))).collect()
    }

    #[test]
    fn each_sort_of_device_gets_a_kind() {
        assert_eq!(split(&[("0", None)]), [""; 0]);
        assert_eq!(split(&[("0", Some("true")), ("1", None)]), ["nvidia.com/gpu.coherent=0"]);
        assert_eq!(split(&[("0", Some("true")), ("GPU-0", Some("true"))]), ["nvidia.com/gpu.coherent=0,GPU-0"]);
        let both = ["nvidia.com/gpu.coherent=0", "nvidia.com/gpu.noncoherent=1"];
        assert_eq!(split(&[("0", Some("true")), ("1", Some("false"))]), both);
    }
}
