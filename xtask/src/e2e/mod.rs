//! `cargo xtask e2e`: chart and image on a real node, with running examples and injected failures.
//!
//! One line per step. A failed step ends the run and leaves the cluster running for debugging.

mod agent;
mod audit;
mod examples;
mod failures;
mod gpu;
mod memory;
mod release;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use self::release::Crds;
use crate::cluster::{self, output, until};
use crate::image::Build;

#[derive(clap::Args)]
pub(crate) struct Args {
    /// Keep the cluster running at the end
    #[arg(long)]
    keep: bool,
    /// Use the development build: the same tests, minutes sooner
    #[arg(long)]
    dev: bool,
    /// Run only some steps, on an existing cluster if there is one
    #[arg(long, value_enum, value_name = "STEPS")]
    only: Option<Only>,
}

/// Steps without prerequisites.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Only {
    /// `capstan agent` on the node
    Agent,
}

/// Namespace and name of the release.
const RELEASE: &str = "capstan";
/// Timeout of a step, generous on a healthy machine.
const STEP_TIMEOUT: Duration = Duration::from_secs(240);

/// State of the suite.
struct Suite {
    root: PathBuf,
    home: PathBuf,
    kubectl: PathBuf,
    helm: PathBuf,
    build: Build,
    begin: Instant,
    steps: usize,
}

pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    if !root.join("charts/capstan/Chart.yaml").is_file() {
        bail!("there is no chart in charts/capstan to install");
    }
    let mut suite = Suite {
        root: root.to_owned(),
        home: cluster::home()?,
        kubectl: PathBuf::new(),
        helm: PathBuf::new(),
        build: args.dev.into(),
        begin: Instant::now(),
        steps: 0,
    };
    suite.step("cluster", |suite| {
        if args.only.is_none() {
            cluster::down()?;
        }
        cluster::up(&suite.root, true)?;
        Ok("one real node, RBAC on".into())
    })?;
    suite.kubectl = cluster::KUBECTL.find(root)?;
    suite.helm = cluster::HELM.find(root)?;
    if args.only == Some(Only::Agent) {
        suite.step("image", examples::image)?;
        suite.agent()?;
        return suite.end(args);
    }
    suite.step("images", examples::images)?;
    suite.step("GPUs and volumes", examples::hardware)?;
    let before = release::everything(&suite)?;
    suite.step("helm install", release::install)?;
    suite.step("leader", failures::leader)?;
    suite.step("examples", examples::apply)?;
    suite.step("served", examples::served)?;
    suite.step("memory", memory::measure)?;
    suite.step("GPU policy", gpu::policy)?;
    suite.step("leader gets SIGTERM", failures::terminate_leader)?;
    suite.step("leader gets SIGKILL", failures::kill_leader)?;
    suite.step("kubelet killed", failures::kill_kubelet)?;
    suite.step("etcd restarted", failures::restart_etcd)?;
    suite.step("API server away for 30 s", failures::stop_api_server)?;
    suite.step("helm upgrade", release::upgrade)?;
    suite.step("helm rollback", release::rollback)?;
    suite.step("examples deleted", examples::delete)?;
    suite.step("helm uninstall", |suite| release::uninstall(suite, &before, Crds::Keep))?;
    suite.step("helm install with crds.keep=false", release::install_with_crd_deletion)?;
    suite.step("helm uninstall with CRDs", |suite| release::uninstall(suite, &before, Crds::Delete))?;
    // Last, as the kubelet keeps a removed device plugin for minutes: the node would have no GPUs for the examples.
    suite.agent()?;
    suite.end(args)
}

impl Suite {
    fn agent(&mut self) -> Result<()> {
        self.step("agent: devices", agent::devices)?;
        self.step("agent: several roles", agent::roles)
    }

    fn end(&mut self, args: &Args) -> Result<()> {
        if !args.keep {
            self.step("cluster down", |_| cluster::down().map(|()| "nothing left behind".into()))?;
        }
        println!("e2e: {} steps on a real node in {:.0} s", self.steps, self.begin.elapsed().as_secs_f64());
        Ok(())
    }

    /// Runs one step and prints its result.
    fn step(&mut self, name: &str, work: impl FnOnce(&Self) -> Result<String>) -> Result<()> {
        let begin = Instant::now();
        let detail = work(self).with_context(|| format!("e2e: {name}; logs are in {}", self.home.display()))?;
        self.steps += 1;
        let (total, took) = (self.begin.elapsed().as_secs_f64(), begin.elapsed().as_secs_f64());
        println!("e2e {total:6.1}s  {name}: {detail} ({took:.1} s)");
        Ok(())
    }

    /// Runs kubectl as the administrator.
    fn kubectl(&self, args: &[&str]) -> Result<String> {
        let config = self.home.join("kubeconfig").display().to_string();
        let args: Vec<&str> = ["--kubeconfig", &config, "--request-timeout=10s"].iter().chain(args).copied().collect();
        output(&self.kubectl, &args)
    }

    /// Runs helm as the administrator.
    fn helm(&self, args: &[&str]) -> Result<String> {
        let config = self.home.join("kubeconfig").display().to_string();
        let args: Vec<&str> = ["--kubeconfig", &config, "--namespace", RELEASE].iter().chain(args).copied().collect();
        output(&self.helm, &args)
    }

    /// Objects as JSON.
    fn json(&self, args: &[&str]) -> Result<Value> {
        let args: Vec<&str> = args.iter().chain(&["-o", "json"]).copied().collect();
        serde_json::from_str(&self.kubectl(&args)?).context("kubectl printed no JSON")
    }

    /// Applies an object.
    fn apply(&self, object: &Value) -> Result<()> {
        let file = self.home.join("apply.json");
        std::fs::write(&file, object.to_string())?;
        self.kubectl(&["apply", "--server-side", "-f", &file.display().to_string()]).map(drop)
    }

    /// Pods of the operator that are not terminating.
    fn operators(&self) -> Result<Vec<Value>> {
        let list = self.json(&["get", "pods", "-n", RELEASE, "-l", "app.kubernetes.io/name=capstan"])?;
        let pods = list["items"].as_array().cloned().unwrap_or_default();
        Ok(pods.into_iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_null()).collect())
    }

    /// Waits until two operators are ready.
    fn two_operators(&self) -> Result<()> {
        self.wait("two operators are not ready", || {
            let ready = |pod: &Value| pod["status"]["containerStatuses"][0]["ready"] == true;
            Ok(self.operators()?.iter().filter(|pod| ready(pod)).count() == 2)
        })
    }

    /// Names of operator pods with their restart counts.
    fn restarts(&self) -> Result<Vec<(String, u64)>> {
        let count = |pod: &Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64().unwrap_or_default();
        let mut all: Vec<_> = self.operators()?.iter().map(|pod| (name(pod), count(pod))).collect();
        all.sort();
        Ok(all)
    }

    /// Waits for a condition; errors are retried, as the API server may be down.
    fn wait(&self, otherwise: &str, mut holds: impl FnMut() -> Result<bool>) -> Result<()> {
        let mut last = Ok(false);
        let done = until(STEP_TIMEOUT, || {
            last = holds();
            matches!(last, Ok(true))
        });
        if done {
            return Ok(());
        }
        last?;
        bail!("{otherwise} after {} s", STEP_TIMEOUT.as_secs())
    }
}

/// Name of an object.
fn name(object: &Value) -> String {
    object["metadata"]["name"].as_str().unwrap_or_default().to_owned()
}
