//! What one pass sees, and what it decides. No requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use capstan_api::foreign::NodeMaintenance;
use capstan_operands::gpu::upgrade::{
    self, Counts, DriverPod, Health, Maintenance, MaintenanceAction, NodeView, PodView, Report, Requestor, State, Step,
    Stock, StockNote, Validator, keys,
};
use capstan_plan::{Gvk, Live, Packed, Tree};
use capstan_runtime::Cache;
use capstan_runtime::kinds::{DRIVERS, VALIDATORS};
use jiff::Timestamp;
use k8s_openapi::api::apps::v1::{ControllerRevision, DaemonSet};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::resource::v1::ResourceClaim;
use serde_json::Value;

use super::crew::Crew;
use crate::gpu::{Cx, nodes};

/// What a pass decided.
#[derive(Default)]
pub(super) struct Decided {
    /// What to do on nodes.
    pub(super) steps: Vec<Step>,
    /// What to remember on DaemonSets.
    pub(super) notes: Vec<StockNote>,
    /// Requests for maintenance that nobody needs any more.
    pub(super) releases: Vec<MaintenanceAction>,
    /// Nodes whose pods have to be known.
    pub(super) to_empty: BTreeSet<String>,
    /// What to show.
    pub(super) reports: BTreeMap<String, Report>,
    /// The nodes in numbers; `None` where nothing is upgraded automatically.
    pub(super) counts: Option<Counts>,
    /// When to look again though nothing changed.
    pub(super) wake: Option<Timestamp>,
}

/// Looks at all nodes.
pub(super) fn decide(cx: &Cx, crew: &Crew, now: Timestamp) -> Decided {
    let (cache, namespace) = (&cx.runtime.cache, cx.settings.namespace.as_str());
    let requestor = cx.settings.requestor.as_ref();
    let rulers = nodes::rulers(cache, requestor);
    let maintenances = maintenances(cache, requestor);
    if rulers == upgrade::Rulers::Nobody && maintenances.is_empty() {
        return Decided::default();
    }
    let nodes = cache.packed(&Gvk::of::<Node>());
    let sets = cache.in_namespace(&Gvk::of::<DaemonSet>(), namespace);
    let revisions = cache.in_namespace(&Gvk::of::<ControllerRevision>(), namespace);
    let stock = Stock::of(sets.iter().map(|one| &**one), revisions.iter().map(|one| &**one));
    let pods = Pods::of(cache, crew, namespace);
    let claims = pods.claims(cache);
    let claims: HashMap<_, _> = claims.iter().map(|claim| (name_of(claim), &**claim)).collect();
    let (drivers, validators) = (pods.drivers(), pods.validators());

    let mut decided = Decided::default();
    let mut counts = Counts::default();
    let mut groups: BTreeMap<&str, Vec<NodeView<'_>>> = BTreeMap::new();
    let mut asked_for: BTreeSet<&str> = BTreeSet::new();
    for live in nodes.iter().filter(|live| stays(live)) {
        let mut view = NodeView::of(live);
        if view.node.annotations.is(keys::REQUESTOR, "true") {
            asked_for.insert(view.node.name);
        }
        let Some(ruler) = rulers.of_node(&view.node) else { continue };
        let state = State::of(view.node.labels);
        view.wanted = stock.wanted(&view.node);
        view.driver = drivers.get(view.node.name).map(|pod| DriverPod::of(*pod));
        if view.wanted.is_none() && view.driver.is_none() && matches!(state, State::Unset | State::Done) {
            continue;
        }
        if state.needs_pods() {
            decided.to_empty.insert(view.node.name.into());
        }
        if !matches!(state, State::Unset | State::Done) {
            view.validators = validators.get(view.node.name).into_iter().flatten().map(|pod| validator(pod)).collect();
        }
        view.pods = pods.workload(view.node.name, &claims);
        view.maintenance = maintenances.get(view.node.name).map(Maintenance::of);
        groups.entry(ruler).or_default().push(view);
    }
    for (ruler, views) in &groups {
        let Some(settings) = rulers.settings(ruler) else { continue };
        let pass = upgrade::step(settings, views, now);
        let held_back: Vec<&str> = stock.held_back(ruler).collect();
        decided.reports.insert((*ruler).into(), Report::of(&pass, settings, &held_back));
        counts += pass.counts;
        decided.notes.extend(pass.roll_back_to.as_deref().and_then(|back_to| stock.reject(back_to)));
        decided.wake = decided.wake.into_iter().chain(pass.wake).min();
        decided.steps.extend(pass.steps);
    }
    decided.counts = (rulers != upgrade::Rulers::Nobody).then_some(counts);
    decided.notes.extend(stock.forgive());
    if let Some(us) = requestor {
        let idle = maintenances.iter().filter(|(node, _)| !asked_for.contains(node.as_str()));
        decided.releases =
            idle.filter_map(|(node, live)| upgrade::release(us, node, Some(&Maintenance::of(live)))).collect();
    }
    decided
}

/// Requests for maintenance, by node: only those under the name that ours has.
fn maintenances(cache: &Cache, us: Option<&Requestor>) -> BTreeMap<String, NodeMaintenance> {
    let Some(us) = us else { return BTreeMap::new() };
    let all = cache.in_namespace(&Gvk::of::<NodeMaintenance>(), &us.namespace);
    let read = all.iter().filter_map(|live| serde_json::from_value::<NodeMaintenance>((**live).clone()).ok());
    let named = read.filter_map(|one| {
        let node = one.spec.node_name.clone()?;
        (one.metadata.name.as_deref() == Some(us.name(&node).as_str())).then_some((node, one))
    });
    named.collect()
}

/// Whether it is not being deleted.
fn stays(object: &Packed) -> bool {
    object.at("metadata").at("deletionTimestamp").text().is_none()
}

/// Namespace and name.
fn name_of(object: &Value) -> (&str, &str) {
    let text = |field: &str| object["metadata"][field].as_str().unwrap_or_default();
    (text("namespace"), text("name"))
}

fn validator(pod: &Packed) -> Validator<'_> {
    Validator { name: pod.at("metadata").at("name").text().unwrap_or_default(), health: Health::of(pod.at("status")) }
}

/// The pods that matter.
struct Pods {
    drivers: Vec<Packed>,
    validators: Vec<Packed>,
    workload: HashMap<String, Vec<Live>>,
    refusals: HashMap<String, String>,
}

impl Pods {
    fn of(cache: &Cache, crew: &Crew, namespace: &str) -> Self {
        let slice = |slice: &str| {
            let mut pods = cache.packed_slice(slice);
            pods.retain(|pod| pod.at("metadata").at("namespace").says(namespace));
            pods
        };
        let (drivers, validators) = (slice(DRIVERS), slice(VALIDATORS));
        Self { drivers, validators, workload: crew.pods(), refusals: crew.refusals() }
    }

    /// Claims, if a pod to be evicted has any.
    fn claims(&self, cache: &Cache) -> Vec<Live> {
        let has = |pod: &Live| pod["spec"]["resourceClaims"].is_array();
        let any = self.workload.values().flatten().any(has);
        if any { cache.all(&Gvk::of::<ResourceClaim>()) } else { Vec::new() }
    }

    /// The driver pod of each node. One that comes or goes matters less than one that stays.
    fn drivers(&self) -> HashMap<&str, &Packed> {
        let mut drivers: HashMap<&str, &Packed> = HashMap::new();
        for pod in &self.drivers {
            let Some(node) = pod.at("spec").at("nodeName").text() else { continue };
            let known = drivers.entry(node).or_insert(pod);
            if !stays(known) && stays(pod) {
                *known = pod;
            }
        }
        drivers
    }

    /// The validators of each node.
    fn validators(&self) -> HashMap<&str, Vec<&Packed>> {
        let mut validators: HashMap<&str, Vec<&Packed>> = HashMap::new();
        for pod in &self.validators {
            if let Some(node) = pod.at("spec").at("nodeName").text() {
                validators.entry(node).or_default().push(pod);
            }
        }
        validators
    }

    fn workload<'a>(&'a self, node: &str, claims: &HashMap<(&'a str, &'a str), &'a Value>) -> Option<Vec<PodView<'a>>> {
        let pods = self.workload.get(node)?.iter().map(|pod| {
            let namespace = name_of(pod).0;
            let find = |name: &str| claims.iter().find(|(known, _)| **known == (namespace, name)).map(|(_, one)| *one);
            let mut view = PodView::of(pod, find);
            view.refused = self.refusals.get(view.pod.uid).map(String::as_str);
            view
        });
        Some(pods.collect())
    }
}
