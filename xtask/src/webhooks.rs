//! Rules of the chart's ValidatingWebhookConfiguration, generated from the webhooks of products.
//!
//! `templates/webhook.yaml` renders one entry of each, and fills in release-specific fields.

use anyhow::Result;
use capstan_operator::PRODUCTS;
use capstan_operator::admission::{Failure, Webhook};
use serde_json::{Value, json};

use crate::Generated;

pub(crate) fn file() -> Result<Generated> {
    let webhooks: Vec<Value> = PRODUCTS.iter().flat_map(|product| product.webhooks).map(entry).collect();
    Ok(("charts/capstan/files/webhooks.json".into(), serde_json::to_string_pretty(&webhooks)? + "\n"))
}

fn entry(webhook: &Webhook) -> Value {
    let kind = &webhook.kind;
    json!({
        "name": webhook.name(),
        "comment": webhook.comment,
        "path": webhook.path(),
        // Empty: set by the values.
        "failurePolicy": match webhook.failure { Failure::Configured => "", Failure::Ignore => "Ignore" },
        "timeoutSeconds": webhook.timeout_seconds,
        "group": kind.group,
        "version": kind.version,
        "operations": webhook.operations,
        "resource": kind.plural,
        "scope": if kind.namespaced { "Namespaced" } else { "Cluster" },
    })
}
