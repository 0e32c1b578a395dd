//! What one pass sees, and what it decides. No requests.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use capstan_api::foreign::NodeMaintenance;
use capstan_operands::gpu::nodes::Node as View;
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
    let pods = Pods::of(cache, crew, namespace, &nodes);
    let claims = pods.claims(cache);
    let claims: HashMap<_, _> = claims.iter().map(|claim| (name_of(claim), &**claim)).collect();
    let drivers = pods.drivers();

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
        view.validators = pods.validators(view.node.name);
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

/// The pods that matter.
struct Pods {
    drivers: Vec<Packed>,
    validators: HashMap<String, Vec<Live>>,
    workload: HashMap<String, Vec<Live>>,
    refusals: HashMap<String, String>,
}

impl Pods {
    fn of(cache: &Cache, crew: &Crew, namespace: &str, nodes: &[Packed]) -> Self {
        let here = |pod: &Live| pod["metadata"]["namespace"] == namespace;
        let busy = nodes.iter().map(View::of);
        let busy = busy.filter(|node| !matches!(State::of(node.labels), State::Unset | State::Done));
        let validators = busy.map(|node| {
            let mut pods = cache.on_node(VALIDATORS, node.name);
            pods.retain(here);
            (node.name.to_owned(), pods)
        });
        let validators = validators.collect();
        let mut drivers = cache.packed_slice(DRIVERS);
        drivers.retain(|pod| pod.at("metadata").at("namespace").says(namespace));
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

    fn validators(&self, node: &str) -> Vec<Validator<'_>> {
        let pods = self.validators.get(node).into_iter().flatten();
        pods.map(|pod| Validator { name: name_of(pod).1, health: Health::of(&pod["status"]) }).collect()
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
