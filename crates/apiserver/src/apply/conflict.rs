//! Conflict errors of server-side apply.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::entries::{Manager, Operation};
use super::gofmt;
use super::path::{self, Path};
use super::updater::Conflict;
use crate::error::Status;

/// 409 with one cause per conflicting field.
pub(crate) fn status(conflicts: &[Conflict]) -> Status {
    let causes: Vec<Value> = conflicts
        .iter()
        .map(|(manager, path)| {
            json!({
                "reason": "FieldManagerConflict",
                "message": format!("conflict with {}", describe(manager)),
                "field": path::display(path),
            })
        })
        .collect();
    Status::new(409, "Conflict", message(conflicts)).with_details(json!({"causes": causes}))
}

fn message(conflicts: &[Conflict]) -> String {
    if let [(manager, path)] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", describe(manager), path::display(path));
    }
    let mut by_manager: BTreeMap<&Manager, Vec<&Path>> = BTreeMap::new();
    for (manager, path) in conflicts {
        by_manager.entry(manager).or_default().push(path);
    }
    let mut lines = Vec::new();
    for (manager, paths) in by_manager {
        lines.push(format!("conflicts with {}:", describe(manager)));
        lines.extend(paths.into_iter().map(|path| format!("- {}", path::display(path))));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}

/// `"kubectl" with subresource "status" using apps/v1`; without the version for applying managers.
fn describe(manager: &Manager) -> String {
    let mut text = gofmt::quoted(&manager.name);
    if !manager.subresource.is_empty() {
        text += &format!(" with subresource {}", gofmt::quoted(&manager.subresource));
    }
    if manager.operation == Operation::Update {
        text += &format!(" using {}", manager.api_version);
    }
    text
}
