//! Tables: the server-side printing of `kubectl get`. Built-in kinds have printers, CRDs declare their columns.

mod apps;
mod config;
mod core;
mod custom;
mod format;
mod jsonpath;
mod network;
mod pod;
mod policy;
mod storage;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::error::{Result, Status};
use crate::registry::Resource;
use crate::store::Object;

/// What a row contains besides its cells.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Include {
    /// Nothing.
    None,
    /// The metadata of the object.
    #[default]
    Metadata,
    /// The object.
    Object,
}

impl Include {
    /// Parses `includeObject`.
    pub(crate) fn parse(text: Option<&str>) -> Result<Self> {
        match text.unwrap_or_default() {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "Unable to convert to Table as requested: includeObject: Invalid value: {other:?}: must be 'Metadata', \
                 'Object', 'None', or empty"
            ))),
        }
    }
}

/// Whether a table has column definitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Headers {
    /// Yes.
    Shown,
    /// No: an earlier table of the same watch had them.
    Hidden,
}

/// Source of a column's description.
#[derive(Clone, Copy, Debug)]
enum Text {
    /// Given here.
    Own(&'static str),
    /// The description of a field in a Kubernetes definition, whose name is without `io.k8s.api.`.
    Field(&'static str, &'static str),
}

/// A column.
#[derive(Clone, Copy, Debug)]
struct Column {
    name: &'static str,
    kind: &'static str,
    format: &'static str,
    text: Text,
    /// 0 is always shown, 1 with `-o wide`.
    priority: u8,
}

impl Column {
    /// A column with its own description.
    const fn own(name: &'static str, kind: &'static str, text: &'static str) -> Self {
        Self { name, kind, format: "", text: Text::Own(text), priority: 0 }
    }

    /// A column with the description of a field.
    const fn of(name: &'static str, kind: &'static str, definition: &'static str, field: &'static str) -> Self {
        Self { name, kind, format: "", text: Text::Field(definition, field), priority: 0 }
    }

    /// The same, only shown with `-o wide`.
    const fn wide(self) -> Self {
        Self { priority: 1, ..self }
    }

    fn definition(&self) -> Value {
        let text = match self.text {
            Text::Own(text) => text.to_owned(),
            Text::Field(definition, field) => description(definition, field),
        };
        json!({
            "name": self.name, "type": self.kind, "format": self.format, "description": text, "priority": self.priority,
        })
    }
}

const META: &str = "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta";
const NAME: Column = Column { format: "name", ..Column::of("Name", "string", META, "name") };
const AGE: Column = Column::of("Age", "string", META, "creationTimestamp");
const CREATED: Column = Column::of("Created At", "date", META, "creationTimestamp");
const CONTAINERS: Column = Column::own("Containers", "string", "Names of each container in the template.").wide();
const IMAGES: Column = Column::own("Images", "string", "Images referenced by each container in the template.").wide();

/// The description of a field in its definition.
fn description(definition: &str, field: &str) -> String {
    let full =
        if definition.starts_with("io.k8s.") { definition.to_owned() } else { format!("io.k8s.api.{definition}") };
    let found =
        capstan_schema::definition(&full).and_then(|source| source["properties"][field]["description"].as_str());
    found.unwrap_or_default().to_owned()
}

/// Computes the cells of an object.
type Cells = fn(&Value, Timestamp) -> Vec<Value>;

/// The printer of a kind.
struct Printer {
    columns: &'static [Column],
    cells: Cells,
}

/// The printer of a built-in kind.
fn printer(group: &str, kind: &str) -> Option<Printer> {
    let printers = [pod::printer, apps::printer, core::printer, network::printer, policy::printer];
    let more = [storage::printer, config::printer];
    printers.into_iter().chain(more).find_map(|find| find(group, kind))
}

/// The default printer.
const DEFAULT: Printer = Printer {
    columns: &[NAME, CREATED],
    cells: |object, _| vec![name(object), object["metadata"]["creationTimestamp"].clone()],
};

/// The table of some objects.
pub(crate) fn table<'a>(
    resource: &Resource,
    objects: impl Iterator<Item = &'a Object>,
    metadata: Value,
    version: &str,
    include: Include,
    headers: Headers,
    now: Timestamp,
) -> Value {
    let mut objects = objects.peekable();
    // A subresource may return another kind than the resource's.
    let scale = objects.peek().is_some_and(|object| *object.types.kind == *"Scale");
    let (columns, rows) = match resource.custom() {
        Some(_) if scale => custom::table(&custom::scale(), objects, version, include, now),
        Some(custom) => custom::table(custom, objects, version, include, now),
        None if scale => builtin(apps::SCALE, resource, objects, version, include, now),
        None => {
            let printer = printer(&resource.group, &resource.kind).unwrap_or(DEFAULT);
            builtin(printer, resource, objects, version, include, now)
        }
    };
    let columns = if headers == Headers::Shown { columns } else { Value::Null };
    json!({
        "kind": "Table",
        "apiVersion": format!("meta.k8s.io/{version}"),
        "metadata": metadata,
        "columnDefinitions": columns,
        "rows": rows,
    })
}

/// Marks the default class in a list of StorageClasses, which depends on the other classes.
pub(crate) fn mark_default(resource: &Resource, objects: &[Arc<Object>], table: &mut Value) {
    if &*resource.group != "storage.k8s.io" || &*resource.plural != "storageclasses" {
        return;
    }
    let values: Vec<Value> = objects.iter().map(|object| object.value()).collect();
    if let Some(index) = storage::default_class(&values) {
        let cell = &mut table["rows"][index]["cells"][0];
        *cell = format!("{} (default)", cell.as_str().unwrap_or_default()).into();
    }
}

fn builtin<'a>(
    printer: Printer,
    resource: &Resource,
    objects: impl Iterator<Item = &'a Object>,
    version: &str,
    include: Include,
    now: Timestamp,
) -> (Value, Vec<Value>) {
    let rows = objects
        .map(|object| {
            let value = object.value();
            let mut row = json!({"cells": (printer.cells)(&value, now)});
            if let Some(conditions) = pod::conditions(resource, &value) {
                row["conditions"] = conditions;
            }
            attach(&mut row, object, value, version, include);
            row
        })
        .collect();
    (printer.columns.iter().map(Column::definition).collect(), rows)
}

/// Adds the object or its metadata to a row.
fn attach(row: &mut Value, object: &Object, value: Value, version: &str, include: Include) {
    match include {
        Include::None => row["object"] = Value::Null,
        Include::Object => row["object"] = value,
        Include::Metadata => {
            let mut text = Vec::new();
            super::output::metadata_only(object, version, &mut text);
            row["object"] = serde_json::from_slice(&text).unwrap_or_default();
        }
    }
}

/// The name of an object.
fn name(object: &Value) -> Value {
    object["metadata"]["name"].as_str().unwrap_or_default().into()
}

/// The age of an object.
fn age(object: &Value, now: Timestamp) -> Value {
    format::since(&object["metadata"]["creationTimestamp"], now).into()
}

/// The creation time of an object, as printed for roles.
fn created(object: &Value) -> Value {
    object["metadata"]["creationTimestamp"].as_str().unwrap_or_default().into()
}
