//! Tests of admission through the verbs.

mod golden;
mod services;
mod workloads;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Settings, standard};
use crate::auth::UserInfo;
use crate::clock::Clock;
use crate::error::{Result, Status};
use crate::ops::{self, Caller, DeleteOptions, GetOptions, Server, Target, WriteOptions, Written};
use crate::registry::Resource;

/// A server with all admission plugins, and shorthands for requests.
pub(crate) struct Bench {
    pub(crate) server: Server,
    pub(crate) caller: Caller,
    pub(crate) options: WriteOptions,
}

impl Bench {
    pub(crate) async fn new(settings: Settings) -> Self {
        let clock = Clock::starting_at("2030-01-01T00:00:00Z".parse::<Timestamp>().unwrap());
        let (kinds, admission) = standard(&settings);
        let settings = ops::Settings {
            clock: Some(clock),
            seed: Some(1),
            kinds: Some(kinds),
            admission,
            ..ops::Settings::default()
        };
        let server = Server::new(settings);
        let caller = Caller { user: UserInfo::admin(), user_agent: "tester/1.0".into() };
        let bench = Self { server, caller, options: WriteOptions::default() };
        for name in ["default", "other"] {
            bench.create("namespaces", json!({"metadata": {"name": name}})).await.unwrap();
        }
        bench
    }

    /// The same server as another user.
    pub(crate) fn user(&self, user: UserInfo) -> Self {
        let caller = Caller { user, user_agent: "tester/1.0".into() };
        Self { server: self.server.clone(), caller, options: self.options.clone() }
    }

    pub(crate) fn target(&self, resource: &str, name: Option<&str>) -> Target {
        let (plural, group) =
            resource.split_once('.').map_or((resource, None), |(plural, group)| (plural, Some(group)));
        let snapshot = self.server.registry().snapshot();
        let mut found = snapshot.iter().filter(|one| *one.plural == *plural);
        let is = |one: &Resource, part: &str| *one.group == *part || *one.version == *part;
        let found = found.find(|one| group.is_none_or(|part| is(one, part))).expect(resource).clone();
        let namespace = found.namespaced.then(|| "default".to_owned());
        Target { resource: found, namespace, name: name.map(Into::into), subresource: None }
    }

    pub(crate) async fn write(&self, resource: &str, body: Value) -> Result<Written> {
        self.server.create(&self.caller, &self.target(resource, None), body.into(), &self.options).await
    }

    pub(crate) async fn create(&self, resource: &str, body: Value) -> Result<Value> {
        self.write(resource, body).await.map(|written| written.object.value())
    }

    pub(crate) async fn patch(&self, resource: &str, name: &str, patch: Value) -> Result<Value> {
        self.patch_target(&self.target(resource, Some(name)), patch).await
    }

    pub(crate) async fn patch_status(&self, resource: &str, name: &str, patch: Value) -> Result<Value> {
        self.patch_target(&self.target(resource, Some(name)).sub("status"), patch).await
    }

    async fn patch_target(&self, target: &Target, patch: Value) -> Result<Value> {
        self.merge(target, patch).await.map(|written| written.object.value())
    }

    /// Reads, merges and updates.
    pub(crate) async fn merge(&self, target: &Target, patch: Value) -> Result<Written> {
        let main = Target { subresource: None, ..target.clone() };
        let mut object = self.server.get(&self.caller, &main, &GetOptions::default()).await?.value();
        json_patch::merge(&mut object, &patch);
        self.server.update(&self.caller, target, object.into(), &self.options).await
    }

    pub(crate) async fn delete(&self, resource: &str, name: &str) -> Result<()> {
        let options = DeleteOptions { grace: Some(0), ..DeleteOptions::default() };
        self.server.delete(&self.caller, &self.target(resource, Some(name)), &options).await.map(drop)
    }
}

pub(crate) fn pod(name: &str) -> Value {
    json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}})
}

/// Code and message of an error.
pub(crate) fn refused<T: std::fmt::Debug>(result: Result<T>) -> (u16, String) {
    let Status { code, message, .. } = result.expect_err("it is refused");
    (code, message)
}
