//! XIDs: errors that the driver reports about a GPU by number, their meaning and the action.

use crate::doctor::finding::{Finding, Scope, Severity};
use crate::doctor::index::{Index, Role, short, text};
use crate::snapshot::named;

/// Origin of an error.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// The application: the GPU keeps working.
    Program,
    /// The GPU.
    Gpu,
}

/// Meaning of an XID.
struct Meaning {
    number: u32,
    fault: Fault,
    means: &'static str,
    action: &'static str,
}

const fn program(number: u32, means: &'static str, action: &'static str) -> Meaning {
    Meaning { number, fault: Fault::Program, means, action }
}

const fn gpu(number: u32, means: &'static str, action: &'static str) -> Meaning {
    Meaning { number, fault: Fault::Gpu, means, action }
}

const RESET: &str = "take pods off the node and reset the GPU (nvidia-smi --gpu-reset), or reboot the node";
const REPLACE: &str = "drain the node and reboot it; when it comes back, run dcgmi diag -r 3 and have the GPU replaced";
const DEBUG_PROGRAM: &str =
    "look at the program: compute-sanitizer shows the access; if it comes with every program, run dcgmi diag";

/// XIDs that occur in practice.
const MEANINGS: &[Meaning] = &[
    program(13, "a program made an illegal access or an instruction failed", DEBUG_PROGRAM),
    program(31, "a program used an address of memory that is not its own", DEBUG_PROGRAM),
    program(32, "the commands of a program to the GPU are damaged", DEBUG_PROGRAM),
    gpu(38, "the firmware of the driver failed", RESET),
    program(
        43,
        "a program's channel was ended after a fault; other programs go on",
        "look at what it said before; start the program again",
    ),
    program(
        45,
        "work was cleaned up after a program ended or failed",
        "nothing, if a program was stopped; else look at the XID before it",
    ),
    gpu(46, "the GPU stopped working", RESET),
    gpu(
        48,
        "memory has an error of two bits that could not be corrected",
        "reset the GPU; if XID 63 or 64 comes with it, see there; run dcgmi diag if it comes again",
    ),
    gpu(54, "a power cable of the GPU is not connected", "have the power cables checked"),
    gpu(61, "the GPU's own controller met a breakpoint or a warning", RESET),
    gpu(62, "the GPU's own controller has halted", RESET),
    gpu(
        63,
        "a bad place in memory was recorded to be replaced",
        "reset the GPU when its pods are done: only then the spare memory is used",
    ),
    gpu(64, "a bad place in memory could not be recorded: no spare memory is left", REPLACE),
    program(68, "the video decoder failed", DEBUG_PROGRAM),
    program(69, "the graphics engine refused what a program asked for", DEBUG_PROGRAM),
    gpu(
        74,
        "a link between GPUs (NVLink) failed",
        "drain the node, look at nvidia-smi nvlink -e, reset all GPUs that are linked; if it comes again, have cable, switch or GPU replaced",
    ),
    gpu(79, "the GPU fell off the bus", REPLACE),
    gpu(
        92,
        "memory has very many errors of one bit, which are corrected",
        "run dcgmi diag -r 3 at the next chance; watch for XID 48, 63 and 64",
    ),
    gpu(
        94,
        "an error in memory, confined to one program",
        "the program has to start again; reset the GPU when its other pods are done",
    ),
    gpu(95, "an error in memory that is not confined: every program on the GPU is affected", RESET),
    program(
        109,
        "switching between programs took too long",
        "start the program again; if it comes often, update the driver",
    ),
    gpu(119, "the GPU's system processor (GSP) does not answer", RESET),
    gpu(120, "the GPU's system processor (GSP) has failed", RESET),
    gpu(121, "the link between CPU and GPU (C2C) had an error", RESET),
    gpu(136, "training of a link between GPUs failed", RESET),
    gpu(137, "an access over a link between GPUs could not be translated", DEBUG_PROGRAM),
    gpu(140, "errors in memory could not be corrected", RESET),
    gpu(143, "the GPU could not be initialized", REPLACE),
    gpu(149, "a link between GPUs (NVLink 5) failed", RESET),
    gpu(
        154,
        "the driver wants something done about the GPU",
        "do what `nvidia-smi -q` says under GPU Recovery Action: reset, reboot, or drain and reset",
    ),
];

/// The XID in a line of the kernel, a device plugin or an exporter.
fn number(line: &str) -> Option<u32> {
    let line = line.to_lowercase();
    if line.contains("fallen off the bus") || line.contains("fell off the bus") {
        return Some(79);
    }
    let mut rest = line.as_str();
    while let Some(at) = rest.find("xid") {
        rest = &rest[at + 3..];
        let after = match rest.strip_prefix(" (pci") {
            Some(address) => address.split_once("): ").map_or("", |(_, after)| after),
            None => rest.trim_start_matches(['=', ':', ' ', '"']),
        };
        let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
        if let Ok(number) = digits.parse::<u32>() {
            return Some(number).filter(|number| *number > 0);
        }
    }
    None
}

pub(super) fn check(index: &Index<'_>) -> Vec<Finding> {
    // Node, XID, line.
    let mut reports: Vec<(String, u32, String)> = Vec::new();
    for pod in index.pods.iter().filter(|pod| !pod.node.is_empty()) {
        for (container, line) in index.output_lines(pod) {
            // Database logs have XIDs (transaction IDs), too.
            let of_gpu = pod.role != Role::Workload || line.contains("NVRM") || line.contains("Xid=");
            if let Some(number) = number(line).filter(|_| of_gpu) {
                let line = format!("{}, container {container}: {}", pod.reference(), short(line));
                reports.push((pod.node.to_owned(), number, line));
            }
        }
    }
    for event in index.all_warnings().filter(|event| event["involvedObject"]["kind"] == "Node") {
        let (name, message) = (text(&event["involvedObject"]["name"]), text(&event["message"]));
        if let Some(number) = number(message) {
            reports.push((name.to_owned(), number, format!("Node {name}: {}", short(message))));
        }
    }
    for node in index.nodes() {
        for condition in
            crate::doctor::index::items(&node["status"]["conditions"]).iter().filter(|one| one["status"] == "True")
        {
            let message = text(&condition["message"]);
            if let Some(number) = number(message) {
                let name = named(node).1;
                reports.push((
                    name.to_owned(),
                    number,
                    format!("Node {name}, condition {}: {}", text(&condition["type"]), short(message)),
                ));
            }
        }
    }
    let mut all: Vec<Finding> = Vec::new();
    for (node, number, line) in reports {
        let meaning = MEANINGS.iter().find(|meaning| meaning.number == number);
        let means = meaning.map_or("the driver's release notes tell what it means", |meaning| meaning.means);
        let what = format!("XID {number}: {means}");
        let at = format!("node {node}");
        if let Some(known) = all.iter_mut().find(|one| one.at == at && one.what == what) {
            *known = known.clone().evidence(line);
            continue;
        }
        let finding = Finding::on_node(&node, what).evidence(line);
        let finding = finding.fix(meaning.map_or(RESET, |meaning| meaning.action));
        let is_program = meaning.is_some_and(|meaning| meaning.fault == Fault::Program);
        all.push(if is_program { finding.severity(Severity::Warning).scope(Scope::Objects) } else { finding });
    }
    for finding in &mut all {
        let node = finding.at.trim_start_matches("node ").to_owned();
        let plugins = index.on_node(&node, Role::Plugin).map(|pod| pod.reference()).collect::<Vec<_>>();
        *finding = plugins.into_iter().fold(finding.clone(), Finding::object);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::testing::{Cluster, assert_only};

    #[test]
    fn numbers_are_found_however_they_are_written() {
        let cases = [
            ("NVRM: Xid (PCI:0000:3b:00): 79, pid=1234, GPU has fallen off the bus.", Some(79)),
            ("NVRM: Xid (PCI:0000:3b:00): 63, pid='<unknown>', Row Remapper", Some(63)),
            ("XidCriticalError: Xid=48 on Device=GPU-1, the device will go unhealthy.", Some(48)),
            ("WARN unhealthy device=\"GPU-1\" cause=XID 94", Some(94)),
            ("WARN unhealthy device=\"GPU-1\" cause=the GPU fell off the bus", Some(79)),
            ("no xids so far", None),
            ("xid 0", None),
        ];
        for (line, expected) in cases {
            assert_eq!(number(line), expected, "{line}");
        }
    }

    #[test]
    fn every_number_is_there_once_and_says_what_to_do() {
        for number in [13, 31, 43, 45, 48, 61, 62, 63, 64, 74, 79, 92, 94, 95, 119, 120, 140, 154] {
            assert_eq!(MEANINGS.iter().filter(|meaning| meaning.number == number).count(), 1, "{number}");
        }
        assert!(MEANINGS.iter().all(|meaning| !meaning.action.is_empty()));
    }

    #[test]
    fn an_xid_is_told_with_meaning_and_action() {
        let cluster = Cluster::healthy()
            .log("plugin", "gpu-1", "nvidia-device-plugin", "XidCriticalError: Xid=74 on Device=GPU-1")
            .edit("Node", "gpu-1", |node| node["status"]["allocatable"]["nvidia.com/gpu"] = "7".into());
        let report = assert_only(&cluster, "xid");
        assert_eq!(report.causes[0].title, "node gpu-1: XID 74: a link between GPUs (NVLink) failed");
        assert_eq!(report.also_seen.len(), 1, "the GPU that is missing follows: {report:?}");
    }

    #[test]
    fn events_of_nodes_count_too() {
        let cluster =
            Cluster::healthy().warning("Node", "", "gpu-1", "XidError", "NVRM: Xid (PCI:0000:3b:00): 95, pid=1");
        assert_only(&cluster, "xid");
    }
}
