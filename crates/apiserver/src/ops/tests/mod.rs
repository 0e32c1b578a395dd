//! Tests of the verbs.

mod deletion;
mod faults;
mod reading;
mod subresources;
mod writing;

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::*;
use crate::clock::Clock;
use crate::error::Result;
use crate::store::{Listing, Object};

/// A server with the namespaces `default` and `other`, and shorthands for requests.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) caller: Caller,
}

impl Bench {
    pub(crate) async fn new() -> Self {
        let clock = Clock::starting_at("2030-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let server = Server::new(Settings { clock: Some(clock), seed: Some(1), ..Settings::bare() });
        let caller = Caller { user: UserInfo::admin(), user_agent: "tester/1.0".into() };
        let bench = Self { server, caller };
        for name in ["default", "other"] {
            bench.create("namespaces", None, json!({"metadata": {"name": name}})).await.unwrap();
        }
        bench
    }

    pub(crate) fn all(&self, resource: &str, namespace: Option<&str>) -> Target {
        let snapshot = self.server.registry().snapshot();
        let found = snapshot.iter().find(|one| *one.plural == *resource).expect(resource);
        Target::all(found.clone(), namespace)
    }

    pub(crate) fn one(&self, resource: &str, namespace: Option<&str>, name: &str) -> Target {
        Target { name: Some(name.into()), ..self.all(resource, namespace) }
    }

    pub(crate) async fn create(&self, resource: &str, namespace: Option<&str>, body: Value) -> Result<Value> {
        let target = self.all(resource, namespace);
        let written = self.server.create(&self.caller, &target, body.into(), &WriteOptions::default()).await?;
        assert!(written.created);
        Ok(written.object.value())
    }

    pub(crate) async fn pod(&self, name: &str, body: Value) -> Value {
        let mut pod = body;
        pod["metadata"]["name"] = name.into();
        if pod["spec"].is_null() {
            pod["spec"] = json!({"containers": [{"name": "c", "image": "i"}]});
        }
        self.create("pods", Some("default"), pod).await.unwrap()
    }

    pub(crate) async fn put(&self, target: &Target, body: Value) -> Result<Value> {
        let written = self.server.update(&self.caller, target, body.into(), &WriteOptions::default()).await?;
        Ok(written.object.value())
    }

    pub(crate) async fn get(&self, target: &Target) -> Result<Value> {
        self.server.get(&self.caller, target, &GetOptions::default()).await.map(|object| object.value())
    }

    pub(crate) async fn list(&self, target: &Target, options: ListOptions) -> Result<Listing> {
        self.server.list(&self.caller, target, &options).await
    }

    pub(crate) async fn delete(&self, target: &Target, options: DeleteOptions) -> Result<Deleted> {
        self.server.delete(&self.caller, target, &options).await
    }
}

pub(crate) fn names(objects: &[Arc<Object>]) -> Vec<String> {
    objects.iter().map(|object| object.name().to_owned()).collect()
}
