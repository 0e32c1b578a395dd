//! Failure injection: afterwards no operator was restarted, nothing was lost, nothing was done twice.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::{RELEASE, Suite, audit, examples, name};
use crate::cluster::{self, API_SERVER, ETCD, KUBELET, NODE, Process, ctr};

/// Failover limit after SIGTERM.
const GRACEFUL_FAILOVER_LIMIT: Duration = Duration::from_secs(5);
/// Failover limit after SIGKILL: the lease and two retry periods.
const FAILOVER_LIMIT: Duration = Duration::from_secs(15 + 2 * 2);
/// How long an idle leader is observed.
const OBSERVATION_TIME: Duration = Duration::from_secs(5);

impl Suite {
    /// Pod of the leader, and the lease transitions.
    fn holder(&self) -> Result<(String, u64)> {
        let leases = self.json(&["get", "leases", "-n", RELEASE])?;
        let lease = &leases["items"][0]["spec"];
        let holder = lease["holderIdentity"].as_str().unwrap_or_default();
        // Followed by a suffix that is unique per process.
        let pod = holder.rsplit_once('_').map_or("", |(pod, _)| pod);
        Ok((pod.to_owned(), lease["leaseTransitions"].as_u64().unwrap_or_default()))
    }

    /// Waits for another leader; returns how long it took.
    fn next_leader(&self, since: Instant, before: u64, limit: Duration) -> Result<Duration> {
        self.wait("nobody leads", || Ok(self.holder().is_ok_and(|(pod, count)| !pod.is_empty() && count > before)))?;
        let took = since.elapsed();
        if took > limit {
            bail!("the next leader took {:.1} s, more than {} s", took.as_secs_f64(), limit.as_secs());
        }
        Ok(took)
    }

    fn process(&self, tool: &cluster::Tool) -> Process {
        Process::of(&self.home, tool.name)
    }

    /// Injects a failure without consequences, and asserts that there are none. `field` selects how objects are
    /// compared.
    fn assert_undisturbed(&self, field: &str, failures: impl FnOnce() -> Result<()>) -> Result<()> {
        let (objects, restarts, mark) = (examples::versions(self, field)?, self.restarts()?, self.mark()?);
        failures()?;
        self.wait("the API server does not answer", || Ok(self.kubectl(&["get", "--raw", "/readyz"]).is_ok()))?;
        self.two_operators()?;
        self.wait("nobody leads", || Ok(!self.holder()?.0.is_empty()))?;
        std::thread::sleep(OBSERVATION_TIME);
        if self.restarts()? != restarts {
            bail!("operators were restarted: {restarts:?} before, {:?} after", self.restarts()?);
        }
        self.nothing_done(&objects, field, &mark)
    }

    fn nothing_done(&self, objects: &[String], field: &str, mark: &super::audit::Mark) -> Result<()> {
        let after = examples::versions(self, field)?;
        let writes = self.writes_since(mark)?;
        if let Some(changed) = after.iter().find(|object| !objects.contains(object)) {
            bail!("changed: {changed}; the operator wrote: {}", writes.join(", "));
        }
        if after.len() != objects.len() {
            bail!("there were {} objects, there are {}", objects.len(), after.len());
        }
        if !writes.is_empty() {
            bail!("the operator wrote, though nothing was to be done: {}", writes.join(", "));
        }
        Ok(())
    }
}

pub(super) fn leader(suite: &Suite) -> Result<String> {
    suite.wait("nobody leads", || Ok(!suite.holder()?.0.is_empty()))?;
    Ok(suite.holder()?.0)
}

pub(super) fn terminate_leader(suite: &Suite) -> Result<String> {
    let (objects, mark) = (examples::versions(suite, "resourceVersion")?, suite.mark()?);
    let (pod, count) = suite.holder()?;
    let begin = Instant::now();
    suite.kubectl(&["delete", "pod", &pod, "-n", RELEASE, "--wait=false"])?;
    let took = suite.next_leader(begin, count, GRACEFUL_FAILOVER_LIMIT)?;
    suite.two_operators()?;
    std::thread::sleep(OBSERVATION_TIME);
    suite.nothing_done(&objects, "resourceVersion", &mark)?;
    Ok(format!("{} leads after {:.1} s, and finds nothing to do", suite.holder()?.0, took.as_secs_f64()))
}

pub(super) fn kill_leader(suite: &Suite) -> Result<String> {
    let (objects, mark) = (examples::versions(suite, "resourceVersion")?, suite.mark()?);
    let (pod, count) = suite.holder()?;
    let pods = suite.operators()?;
    let id = pods.iter().find(|candidate| name(candidate) == pod);
    let id = id.and_then(|pod| pod["status"]["containerStatuses"][0]["containerID"].as_str()).unwrap_or_default();
    let begin = Instant::now();
    ctr(&["tasks", "kill", "--signal", "SIGKILL", id.trim_start_matches("containerd://")])?;
    let took = suite.next_leader(begin, count, FAILOVER_LIMIT)?;
    suite.two_operators()?;
    std::thread::sleep(OBSERVATION_TIME);
    suite.nothing_done(&objects, "resourceVersion", &mark)?;
    Ok(format!("{} leads after {:.1} s, and finds nothing to do", suite.holder()?.0, took.as_secs_f64()))
}

pub(super) fn kill_kubelet(suite: &Suite) -> Result<String> {
    // Pods can become unready briefly, which changes the versions of their owners.
    suite.assert_undisturbed("generation", || {
        let beat = || suite.json(&["get", "lease", NODE, "-n", "kube-node-lease"]);
        let kubelet = suite.process(&KUBELET);
        kubelet.signal("KILL")?;
        kubelet.ended()?;
        let last = beat()?["spec"]["renewTime"].clone();
        kubelet.start_again()?;
        suite.wait("the kubelet does not come back", || Ok(beat()?["spec"]["renewTime"] != last))?;
        suite.wait("the node is not Ready", || Ok(cluster::node_is_ready(&suite.home, &suite.kubectl)))
    })?;
    Ok("containers ran on, nothing to do".into())
}

pub(super) fn restart_etcd(suite: &Suite) -> Result<String> {
    suite.assert_undisturbed("resourceVersion", || {
        let etcd = suite.process(&ETCD);
        etcd.stop()?;
        etcd.start_again()
    })?;
    Ok("no restart, no write".into())
}

pub(super) fn stop_api_server(suite: &Suite) -> Result<String> {
    let away = Duration::from_secs(30);
    let stop_for_a_while = || {
        let server = suite.process(&API_SERVER);
        server.signal("KILL")?;
        server.ended()?;
        std::thread::sleep(away);
        server.start_again()
    };
    suite.assert_undisturbed("resourceVersion", stop_for_a_while)?;
    // Once more during a change: it is completed afterwards, exactly once.
    let (restarts, mark) = (suite.restarts()?, suite.mark()?);
    let object = examples::scale(suite, 2)?;
    suite.process(&API_SERVER).signal("KILL")?;
    suite.process(&API_SERVER).ended()?;
    suite.process(&API_SERVER).start_again()?;
    examples::ready(suite, &object)?;
    let writes = suite.writes_since(&mark)?;
    let patches = writes.iter().filter(|write| write.starts_with("patch deployments "));
    let count = patches.filter(|write| audit::is_applied(write)).count();
    if count != 1 {
        bail!("a change of replicas was applied {count} times: {}", writes.join(", "));
    }
    if suite.restarts()? != restarts {
        bail!("operators were restarted: {restarts:?} before, {:?} after", suite.restarts()?);
    }
    let object = examples::scale(suite, 1)?;
    examples::ready(suite, &object)?;
    Ok("no restart, no write; a change on the way was done once".into())
}
