//! Renders the Prometheus text format. Label values are escaped, so no pod name can break a scrape.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::counters::Counters;
use super::fields::{Kind, Value};
use super::pods::Attributes;
use super::sample::Sample;
use super::share::Share;
use super::xid;

/// Rendering options.
#[derive(Debug, Clone, Default)]
pub(super) struct Style {
    /// Value of the `Hostname` label, if enabled.
    pub hostname: Option<String>,
    /// `uuid` instead of `UUID`.
    pub old_namespace: bool,
    /// `NVIDIA-H200` instead of `NVIDIA H200`.
    pub no_blanks_in_model: bool,
    /// One line for every pod that shares a device; else one line with `shared="true"`.
    pub line_per_pod: bool,
}

/// A metric that the exporter computes itself: name, help, and lines of extra labels and value per device.
pub(super) struct Computed {
    /// Its name.
    pub name: &'static str,
    /// Help text.
    pub help: String,
    /// By UUID of the GPU.
    pub lines: BTreeMap<String, Vec<(Attributes, u64)>>,
}

/// Pods that use the devices.
pub(super) struct Users<'a> {
    /// Labels of the pods that hold a device, by its UUID.
    pub pods: &'a BTreeMap<String, Vec<Attributes>>,
    /// Utilisation by pod: by device UUID, then by namespace and name.
    pub shares: &'a BTreeMap<String, BTreeMap<(String, String), Share>>,
}

impl Users<'_> {
    /// A pod's share of a device: zero if only other pods' processes are known, `None` if none are.
    fn share(&self, uuid: &str, attributes: &Attributes, style: &Style) -> Option<Share> {
        let keys = if style.old_namespace { ["pod_namespace", "pod_name"] } else { ["namespace", "pod"] };
        let [namespace, pod] = keys.map(|key| attributes.get(key).cloned().unwrap_or_default());
        let shares = self.shares.get(uuid)?;
        Some(shares.get(&(namespace, pod)).copied().unwrap_or_default())
    }
}

/// Labels of a line, and the pod's share of the device if known.
type Line = (String, Option<Share>);

/// Renders all metrics of all devices.
pub(super) fn render(
    out: &mut String,
    samples: &[Sample<'_>],
    counters: &Counters,
    users: &Users<'_>,
    computed: &[Computed],
    style: &Style,
) {
    let prefixes: Vec<Vec<Line>> = samples.iter().map(|sample| prefixes(sample, counters, users, style)).collect();
    for counter in &counters.metrics {
        let mut declared = false;
        for (sample, prefixes) in samples.iter().zip(&prefixes) {
            let Some(value) = (counter.field.value)(sample) else { continue };
            if !declared {
                declare(out, counter.field.name, counter.kind, &counter.help);
                declared = true;
            }
            for (prefix, share) in prefixes {
                let _ = write!(out, "{}{{{prefix}", counter.field.name);
                if counter.field.name == "DCGM_FI_DEV_XID_ERRORS" {
                    let _ = write!(out, ",err_code=\"{0}\",err_msg=\"{1}\"", sample.xid, xid::text(sample.xid));
                }
                out.push('}');
                match (counter.field.name, share) {
                    ("DCGM_FI_DEV_GPU_UTIL", Some(share)) => value_of(out, &Value::Integer(share.busy.into())),
                    ("DCGM_FI_DEV_FB_USED", Some(share)) => value_of(out, &Value::Integer(share.bytes >> 20)),
                    _ => value_of(out, &value),
                }
            }
        }
    }
    for metric in computed {
        declare(out, metric.name, Kind::Gauge, &metric.help);
        for (sample, prefixes) in samples.iter().zip(&prefixes) {
            for (labels, value) in metric.lines.get(&sample.gpu.uuid).into_iter().flatten() {
                for (prefix, _) in prefixes {
                    let _ = write!(out, "{}{{{prefix}", metric.name);
                    labels.iter().for_each(|(key, value)| label(out, key, value));
                    let _ = writeln!(out, "}} {value}");
                }
            }
        }
    }
}

fn declare(out: &mut String, name: &str, kind: Kind, help: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    let _ = writeln!(out, "# HELP {name} {help}\n# TYPE {name} {}", kind.name());
}

fn value_of(out: &mut String, value: &Value) {
    let _ = match value {
        Value::Integer(number) => writeln!(out, " {number}"),
        Value::Decimal(number) => writeln!(out, " {number:.6}"),
        Value::Text(text) => writeln!(out, " {text}"),
    };
}

/// Labels of a device, one entry for each line that it gets.
fn prefixes(sample: &Sample<'_>, counters: &Counters, users: &Users<'_>, style: &Style) -> Vec<Line> {
    let mut base = String::new();
    let gpu = sample.gpu;
    let model = if style.no_blanks_in_model { gpu.name.replace(' ', "-") } else { gpu.name.clone() };
    label(&mut base, "gpu", &gpu.index.to_string());
    label(&mut base, if style.old_namespace { "uuid" } else { "UUID" }, &gpu.uuid);
    label(&mut base, "pci_bus_id", &gpu.pci.long());
    label(&mut base, "device", &format!("nvidia{}", gpu.minor));
    label(&mut base, "modelName", &model);
    if let Some(part) = sample.mig {
        label(&mut base, "GPU_I_PROFILE", &part.profile);
        label(&mut base, "GPU_I_ID", &part.gi.to_string());
    }
    if let Some(hostname) = &style.hostname {
        label(&mut base, "Hostname", hostname);
    }
    for field in &counters.labels {
        if let Some(Value::Text(text)) = (field.value)(sample) {
            label(&mut base, field.name, &text);
        }
    }
    let sharers = users.pods.get(sample.uuid()).map(Vec::as_slice).unwrap_or_default();
    let with = |attributes: &Attributes, more: &str| {
        let mut line = base.clone();
        attributes.iter().for_each(|(key, value)| label(&mut line, key, value));
        line + more
    };
    match sharers {
        [] => vec![(base, None)],
        [one] => vec![(with(one, ""), None)],
        [first, ..] if !style.line_per_pod => vec![(with(first, ",shared=\"true\""), None)],
        all => {
            all.iter().map(|attributes| (with(attributes, ""), users.share(sample.uuid(), attributes, style))).collect()
        }
    }
}

/// Adds a label, its value escaped.
fn label(out: &mut String, key: &str, value: &str) {
    if !out.is_empty() && !out.ends_with('{') {
        out.push(',');
    }
    out.push_str(key);
    out.push_str("=\"");
    for character in value.chars() {
        match character {
            '\\' => out.push_str("\\\\"),
            '"' => out.push_str("\\\""),
            '\n' => out.push_str("\\n"),
            other => out.push(other),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::super::sample::Snapshot;
    use super::super::selector::Selector;
    use super::*;
    use capstan_hw::fake::{Fake, Recording};

    fn text(
        recording: Recording,
        counters: &Counters,
        pods: &BTreeMap<String, Vec<Attributes>>,
        style: &Style,
    ) -> String {
        let snapshot = Snapshot::collect(&Fake::new(recording)).expect("readings");
        let xids = BTreeMap::new();
        let mut out = String::new();
        let users = Users { pods, shares: &BTreeMap::new() };
        render(&mut out, &snapshot.samples(&Selector::Flexible, &xids), counters, &users, &[], style);
        out
    }

    fn pod(name: &str) -> Attributes {
        BTreeMap::from([("pod".to_owned(), name.to_owned())])
    }

    #[test]
    fn the_recorded_h200_exports_every_default_metric_that_it_can_tell() {
        let style = Style { hostname: Some("node-1".into()), ..Style::default() };
        insta::assert_snapshot!(text(Recording::h200(), &Counters::default(), &BTreeMap::new(), &style));
    }

    #[test]
    fn a_cut_gpu_exports_its_parts() {
        let counters =
            Counters::parse("DCGM_FI_DEV_FB_FREE, gauge, x\nDCGM_FI_DEV_GPU_UTIL, gauge, y\n").expect("counters");
        insta::assert_snapshot!(text(Recording::h200_mig_media(), &counters, &BTreeMap::new(), &Style::default()));
    }

    #[test]
    fn a_name_cannot_break_the_format() {
        let recording = Recording::h200();
        let uuid = recording.inventory.gpus[0].uuid.clone();
        let pods = BTreeMap::from([(uuid, vec![pod("a\"b\\c\nd")])]);
        let counters = Counters::parse("DCGM_FI_DEV_GPU_TEMP, gauge, x\n").expect("counters");
        let text = text(recording, &counters, &pods, &Style::default());
        assert!(text.contains(r#"pod="a\"b\\c\nd""#), "{text}");
        assert_eq!(text.lines().count(), 3);
    }

    #[test]
    fn pods_that_share_a_gpu_get_one_line_or_one_each() {
        let recording = Recording::h200();
        let pods = BTreeMap::from([(recording.inventory.gpus[0].uuid.clone(), vec![pod("a"), pod("b")])]);
        let counters = Counters::parse("DCGM_FI_DEV_GPU_TEMP, gauge, x\n").expect("counters");
        let one = text(recording.clone(), &counters, &pods, &Style::default());
        assert!(one.contains("pod=\"a\",shared=\"true\"") && !one.contains("pod=\"b\""), "{one}");
        let each = text(recording, &counters, &pods, &Style { line_per_pod: true, ..Style::default() });
        assert!(each.contains("pod=\"a\"}") && each.contains("pod=\"b\"}"), "{each}");
    }

    #[test]
    fn pods_that_share_a_gpu_have_their_own_part_where_it_is_known() {
        let recording = Recording::h200();
        let uuid = recording.inventory.gpus[0].uuid.clone();
        let of = |name: &str| Attributes::from([("pod".into(), name.into()), ("namespace".into(), "n".into())]);
        let pods = BTreeMap::from([(uuid.clone(), vec![of("a"), of("b")])]);
        let counters =
            Counters::parse("DCGM_FI_DEV_GPU_UTIL, gauge, x\nDCGM_FI_DEV_FB_USED, gauge, y\n").expect("counters");
        let share = Share { busy: 42, bytes: 3 << 30 };
        let shares = BTreeMap::from([(uuid, BTreeMap::from([(("n".to_owned(), "a".to_owned()), share)]))]);
        let snapshot = Snapshot::collect(&Fake::new(recording)).expect("readings");
        let (xids, mut out) = (BTreeMap::new(), String::new());
        let style = Style { line_per_pod: true, ..Style::default() };
        let users = Users { pods: &pods, shares: &shares };
        render(&mut out, &snapshot.samples(&Selector::Flexible, &xids), &counters, &users, &[], &style);
        let value = |name: &str, pod: &str| {
            let line = out.lines().find(|line| line.starts_with(name) && line.contains(&format!("pod=\"{pod}\"")));
            line.and_then(|line| line.rsplit(' ').next()).unwrap_or_default().to_owned()
        };
        assert_eq!([value("DCGM_FI_DEV_GPU_UTIL", "a"), value("DCGM_FI_DEV_FB_USED", "a")], ["42", "3072"]);
        assert_eq!([value("DCGM_FI_DEV_GPU_UTIL", "b"), value("DCGM_FI_DEV_FB_USED", "b")], ["0", "0"]);
    }
}
