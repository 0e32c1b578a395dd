//! What is wrong with a spec, each with field, value and fix.

use capstan_api::nim::service::InferencePlatform;

use super::storage::{Storage, sources};
use super::{Cx, storage};

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fault {
    /// Stable reason of the condition.
    pub(super) reason: &'static str,
    /// Field, value and fix.
    pub(super) message: String,
}

/// Reason of a spec that asks for what is still to come.
pub(super) const LATER: &str = "NotSupportedYet";

const ACCESS_MODES: [&str; 4] = ["ReadWriteOnce", "ReadOnlyMany", "ReadWriteMany", "ReadWriteOncePod"];

/// Every mistake, in the order of the fields.
pub(super) fn faults(cx: &Cx<'_>) -> Vec<Fault> {
    let mut faults = Vec::new();
    let mut fault = |message: String| faults.push(Fault { reason: "InvalidSpec", message });
    let spec = cx.spec();
    for (field, value) in [("repository", &spec.image.repository), ("tag", &spec.image.tag)] {
        if value.is_empty() {
            fault(format!(
                "spec.image.{field} is empty: name the image to serve, such as nvcr.io/nim/meta/llama3 and 1.0"
            ));
        }
    }
    if let Some(claims) =
        spec.resources.as_ref().and_then(|resources| resources.claims.as_ref()).filter(|c| !c.is_empty())
    {
        fault(format!("spec.resources.claims has {} entries: list them in spec.draResources instead", claims.len()));
    }
    if cx.name.len() > 59 {
        fault(format!(
            "metadata.name has {} characters: use at most 59, names of its objects add to it",
            cx.name.len()
        ));
    }
    for message in storage_faults(cx) {
        fault(message);
    }
    for (set, field) in unsupported(cx) {
        if set {
            faults.push(Fault {
                reason: LATER,
                message: format!(
                    "{field} is not supported yet: remove it, or keep this service with the other operator"
                ),
            });
        }
    }
    faults
}

fn storage_faults(cx: &Cx<'_>) -> Vec<String> {
    let mut faults = Vec::new();
    match sources(cx).as_slice() {
        [] => faults.push("spec.storage names no place for the model: set nimCache, pvc, emptyDir or hostPath".into()),
        [Storage::Claim(claim)] => {
            let named = claim.name.as_ref().is_some_and(|name| !name.is_empty());
            let create = claim.create == Some(true);
            if !create && !named {
                faults.push("spec.storage.pvc has neither create nor name: set create: true, or name a claim".into());
            }
            if create && !claim.size.as_deref().is_some_and(storage_size) {
                let size = claim.size.as_deref().unwrap_or_default();
                faults.push(format!("spec.storage.pvc.size is {size:?}: give a size such as 50Gi"));
            }
            if let Some(mode) = claim.volume_access_mode.as_deref().filter(|mode| !mode.is_empty())
                && !ACCESS_MODES.contains(&mode)
            {
                let known = ACCESS_MODES.join(", ");
                faults.push(format!("spec.storage.pvc.volumeAccessMode is {mode:?}: use one of {known}"));
            }
        }
        [_] => {}
        many => faults.push(format!("spec.storage names {} places for the model: keep one", many.len())),
    }
    faults
}

/// Whether `text` reads as a size: digits, perhaps a fraction, and a unit that Kubernetes knows.
fn storage_size(text: &str) -> bool {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_digit() || c == '.');
    let number = &text[..text.len() - digits.len()];
    number.parse::<f64>().is_ok_and(|number| number > 0.0)
        && ["", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"].contains(&digits)
}

/// Fields that change what is served and are not acted on yet: going on without them would serve something else.
fn unsupported(cx: &Cx<'_>) -> [(bool, &'static str); 4] {
    let spec = cx.spec();
    let cached = matches!(storage::sources(cx).first(), Some(Storage::Cache(_)));
    [
        (cached, "spec.storage.nimCache"),
        (spec.multi_node.is_some(), "spec.multiNode"),
        (spec.dra_resources.as_ref().is_some_and(|list| !list.is_empty()), "spec.draResources"),
        (spec.inference_platform == Some(InferencePlatform::KServe), "spec.inferencePlatform: kserve"),
    ]
}

#[cfg(test)]
mod tests {
    use super::storage_size;

    #[test]
    fn sizes_are_told_from_other_words() {
        for good in ["50Gi", "1.5Ti", "1000000", "10G"] {
            assert!(storage_size(good), "{good}");
        }
        for bad in ["", "Gi", "50 Gi", "50GB", "-1Gi", "0", "large"] {
            assert!(!storage_size(bad), "{bad}");
        }
    }
}
