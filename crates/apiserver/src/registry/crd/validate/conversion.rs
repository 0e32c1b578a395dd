//! Validation of `spec.conversion`.

use serde_json::Value;

use super::one_of;
use crate::error::Cause;
use crate::field::Path;
use crate::registry::crd::text;

/// Whether kube-apiserver supports this version of ConversionReview.
pub(super) fn accepted(version: &Value) -> bool {
    version == "v1" || version == "v1beta1"
}

/// Validates the conversion of a CRD.
pub(super) fn check(spec: &Value, any_review_version: bool, path: &Path, causes: &mut Vec<Cause>) {
    let (conversion, path) = (&spec["conversion"], path.child("conversion"));
    if conversion.is_null() {
        return;
    }
    let strategy = text(&conversion["strategy"]);
    if strategy != "None" && spec["preserveUnknownFields"] == true {
        let detail = "must be None if spec.preserveUnknownFields is true";
        causes.push(Cause::invalid(&path.child("strategy"), &strategy.into(), detail));
    }
    causes.extend(one_of(&path.child("strategy"), strategy, &["None", "Webhook"]));
    let (client, reviews) =
        (&conversion["webhook"]["clientConfig"], &conversion["webhook"]["conversionReviewVersions"]);
    let (client_path, reviews_path) = (path.child("webhookClientConfig"), path.child("conversionReviewVersions"));
    if strategy != "Webhook" {
        let detail = "should not be set when strategy is not set to Webhook";
        if !client.is_null() {
            causes.push(Cause::forbidden(&client_path, detail));
        }
        if reviews.as_array().is_some_and(|list| !list.is_empty()) {
            causes.push(Cause::forbidden(&reviews_path, detail));
        }
        return;
    }
    if client.is_null() {
        causes.push(Cause::required(&client_path, "required when strategy is set to Webhook"));
    } else if client["url"].is_null() == client["service"].is_null() {
        causes.push(Cause::required(&client_path, "exactly one of url or service is required"));
    } else if let Some(service) = client["service"].as_object() {
        for name in ["name", "namespace"] {
            if service.get(name).and_then(Value::as_str).unwrap_or_default().is_empty() {
                causes.push(Cause::required(&client_path.child("service").child(name), ""));
            }
        }
    } else if let Some(url) = client["url"].as_str().filter(|url| !url.starts_with("https://")) {
        let scheme = url.split("://").next().filter(|scheme| scheme.len() < url.len()).unwrap_or_default();
        let detail = "'https' is the only allowed URL scheme; desired format: https://host[/path]";
        causes.push(Cause::invalid(&client_path.child("url"), &scheme.into(), detail));
    }
    let list = reviews.as_array().map(Vec::as_slice).unwrap_or_default();
    if list.is_empty() {
        causes.push(Cause::required(&reviews_path, ""));
    } else if !any_review_version && !list.iter().any(accepted) {
        causes.push(Cause::invalid(&reviews_path, reviews, "must include at least one of v1, v1beta1"));
    }
}
