//! Our messages against the published ones: numbers, types and names of all fields, and names of all calls.
//!
//! `cargo xtask protocol` records the published ones in `protocol.txt`. Ours are read from their source: what prost makes
//! of a message follows from its attributes.

use std::collections::BTreeSet;
use std::path::Path;

/// Published fields that we have no use for: file, message, field. A message without them decodes, as they are skipped.
const NOT_READ: &[(&str, &str, &str)] = &[
    ("pod_resources", "PodResources", "cpu_ids"),
    ("pod_resources", "PodResources", "memory"),
    ("pod_resources", "ContainerResources", "cpu_ids"),
    ("pod_resources", "ContainerResources", "memory"),
    ("pod_resources", "ContainerDevices", "topology"),
    ("pod_resources", "AllocatableResourcesResponse", "memory"),
];

/// `NUMANode`, `NumaNode` and `numa_node` are the same name.
fn plain(name: &str) -> String {
    name.trim_start_matches("r#").replace('_', "").to_lowercase()
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Field {
    file: String,
    message: String,
    number: u32,
    /// single, optional, repeated or map
    label: String,
    kind: String,
    name: String,
}

fn published() -> (Vec<Field>, BTreeSet<(String, String)>) {
    let (mut fields, mut calls) = (Vec::new(), BTreeSet::new());
    for line in include_str!("protocol.txt").lines().filter(|line| !line.starts_with('#')) {
        match line.split(' ').collect::<Vec<_>>().as_slice() {
            [file, "field", message, number, label, kind, name] => fields.push(Field {
                file: (*file).into(),
                message: plain(message),
                number: number.parse().expect("a number"),
                label: (*label).into(),
                kind: plain(kind),
                name: plain(name),
            }),
            [file, "rpc", call, ..] => assert!(calls.insert(((*file).to_owned(), (*call).to_owned()))),
            other => panic!("{other:?} is neither a field nor a call"),
        }
    }
    (fields, calls)
}

fn source(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/{file}.rs"));
    std::fs::read_to_string(path).expect("our source")
}

/// The fields of all messages of a file of ours.
fn ours(file: &str) -> Vec<Field> {
    let (mut fields, mut message, mut attribute, mut is_message) = (Vec::new(), String::new(), None, false);
    for line in source(file).lines().map(str::trim) {
        if line.starts_with("#[derive(") {
            is_message = line.contains("prost::Message");
        } else if let Some(name) = line.strip_prefix("pub struct ").filter(|_| is_message) {
            message = plain(name.trim_end_matches([' ', '{', '}']));
        } else if let Some(inside) = line.strip_prefix("#[prost(") {
            attribute = Some(inside.trim_end_matches(")]").to_owned());
        } else if let (Some(attribute), Some(field)) =
            (attribute.take_if(|_| line.starts_with("pub ")), line.strip_prefix("pub "))
        {
            let (name, kind) = field.trim_end_matches(',').split_once(": ").expect("a field has a type");
            fields.push(field_of(file, &message, &attribute, name, kind));
        }
    }
    fields
}

fn field_of(file: &str, message: &str, attribute: &str, name: &str, rust: &str) -> Field {
    let words: Vec<&str> = attribute.split([',', ' ', '=']).filter(|word| !word.is_empty()).collect();
    let number = attribute.split_once("tag = \"").and_then(|(_, rest)| rest.trim_end_matches('"').parse().ok());
    let is_message = words.contains(&"message") && !attribute.starts_with("map");
    // The published form of a message is neither optional nor marked: it always may be absent.
    let label = match () {
        () if attribute.starts_with("map") => "map",
        () if words.contains(&"repeated") => "repeated",
        () if words.contains(&"optional") && !is_message => "optional",
        () => "single",
    };
    let inner = rust.trim_end_matches('>').rsplit(['<', ' ']).next().unwrap_or_default();
    // All published maps are of strings.
    let kind = match label {
        "map" => "string",
        _ if is_message => inner,
        _ => words[0],
    };
    Field {
        file: file.into(),
        message: message.into(),
        number: number.expect("a field has a number"),
        label: label.into(),
        kind: plain(kind),
        name: plain(name),
    }
}

#[test]
fn every_field_has_the_published_number_type_and_name() {
    let (published, _) = published();
    for file in ["device_plugin", "pod_resources", "registration"] {
        let ours = ours(file);
        assert!(ours.len() > 5, "{file}: {} fields", ours.len());
        for field in ours {
            assert!(published.contains(&field), "not published: {field:?}");
        }
    }
}

#[test]
fn a_published_field_of_our_messages_is_read_or_listed() {
    let (published, _) = published();
    let all: Vec<Field> = ["device_plugin", "pod_resources", "registration"].into_iter().flat_map(ours).collect();
    let messages: BTreeSet<(&str, &str)> = all.iter().map(|field| (&*field.file, &*field.message)).collect();
    let missing =
        published.iter().filter(|field| messages.contains(&(&*field.file, &*field.message)) && !all.contains(field));
    let missing: BTreeSet<_> = missing.map(|field| (&*field.file, field.message.clone(), field.name.clone())).collect();
    let listed = NOT_READ.iter().map(|(file, message, field)| (*file, plain(message), plain(field))).collect();
    assert_eq!(missing, listed);
}

#[test]
fn every_call_has_a_published_name() {
    let (_, calls) = published();
    for file in ["device_plugin", "pod_resources", "registration"] {
        let text = source(file);
        let named = text.split('"').filter(|word| word.starts_with("/v1") && word.contains('.'));
        let named: Vec<&str> =
            named.chain(text.split('"').filter(|word| word.starts_with("/pluginregistration."))).collect();
        assert!(!named.is_empty(), "{file} names no call");
        for call in named {
            assert!(calls.contains(&(file.to_owned(), call.to_owned())), "{file}: {call} is not published");
        }
    }
}
