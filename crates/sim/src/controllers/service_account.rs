//! Per-namespace defaults: the `default` ServiceAccount and the root CA ConfigMap.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Namespace, ServiceAccount};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::common::{Controller, Outcome, Reconciled, namespace_is_terminating, set_in};
use crate::context::Context;
use crate::informer::{Cache, Kind};
use crate::writer::{is_already_exists, is_not_found};

const ACCOUNT: &str = "default";
const CONFIG_MAP: &str = "kube-root-ca.crt";
const DESCRIPTION: &str = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal \
                           endpoints such as the internal service IP or kubernetes.default.svc. No other usage is \
                           guaranteed across distributions of Kubernetes clusters.";

pub(crate) fn start(context: &Context, root_ca: Option<Arc<str>>) {
    let accounts = Controller::new(context, "service-account-controller", "serviceaccount-controller");
    accounts.watch(&context.caches.namespaces);
    watch_namespace_of(&accounts, &context.caches.service_accounts, ACCOUNT);
    accounts.run(1, |this, key| async move { ensure_account(&this, &key).await });

    let Some(root_ca) = root_ca else { return };
    let publisher = Controller::new(context, "root-ca-cert-publisher", "root-ca-cert-publisher");
    publisher.watch(&context.caches.namespaces);
    watch_namespace_of(&publisher, &context.caches.root_ca_config_maps, CONFIG_MAP);
    publisher.run(1, move |this, key| {
        let root_ca = root_ca.clone();
        async move { ensure_config_map(&this, &key, &root_ca).await }
    });
}

/// Enqueues the namespace of an object of that name when it changes.
fn watch_namespace_of<K: Kind>(controller: &Controller, cache: &Cache<K>, name: &'static str) {
    let queue = controller.queue.clone();
    cache.subscribe(move |change| {
        let meta = change.last().metadata();
        if let (Some(namespace), Some(mine)) = (&meta.namespace, &meta.name)
            && mine == name
            && change.old.is_some()
        {
            queue.add(namespace.as_str().into());
        }
    });
}

/// The namespace, unless it is terminating.
fn active(this: &Controller, key: &str) -> Option<Arc<Namespace>> {
    this.context.caches.namespaces.get(key).filter(|namespace| namespace.metadata.deletion_timestamp.is_none())
}

fn meta(namespace: &str, name: &str) -> ObjectMeta {
    ObjectMeta { name: Some(name.to_owned()), namespace: Some(namespace.to_owned()), ..ObjectMeta::default() }
}

async fn ensure_account(this: &Controller, key: &str) -> Reconciled {
    if active(this, key).is_some() && this.context.caches.service_accounts.find(key, ACCOUNT).is_none() {
        let account = ServiceAccount { metadata: meta(key, ACCOUNT), ..ServiceAccount::default() };
        create(this, &account).await?;
    }
    Ok(Outcome::Done)
}

async fn ensure_config_map(this: &Controller, key: &str, root_ca: &str) -> Reconciled {
    if active(this, key).is_none() {
        return Ok(Outcome::Done);
    }
    let fill = |map: &mut ConfigMap| {
        set_in(&mut map.data, "ca.crt", root_ca);
        set_in(&mut map.metadata.annotations, "kubernetes.io/description", DESCRIPTION);
    };
    match this.context.caches.root_ca_config_maps.find(key, CONFIG_MAP) {
        Some(old) => {
            let mut next = ConfigMap::clone(&old);
            fill(&mut next);
            this.writer.update(&old, &next).await?;
        }
        None => {
            let mut map = ConfigMap { metadata: meta(key, CONFIG_MAP), ..ConfigMap::default() };
            fill(&mut map);
            create(this, &map).await?;
        }
    }
    Ok(Outcome::Done)
}

async fn create<K: Kind>(this: &Controller, object: &K) -> capstan_apiserver::error::Result<()> {
    match this.writer.create(object).await {
        Err(error) if is_already_exists(&error) || is_not_found(&error) || namespace_is_terminating(&error) => Ok(()),
        other => other.map(drop),
    }
}
