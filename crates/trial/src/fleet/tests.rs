//! Small fleets, each scenario once.

use capstan_inspect::Paint;

use super::*;

fn play(scenario: Scenario, text: &str, until: Duration) -> Report {
    let fleet: Fleet = serde_saphyr::from_str(text).unwrap();
    let choice = Choice { scenario, driver: None, pool: None, until };
    simulate(fleet, None, options(), &choice).unwrap()
}

fn options() -> Options {
    let mut options = Options::in_process();
    options.gpu.agent.image = "registry.example/capstan:1".into();
    options
}

const HOUR: Duration = Duration::from_secs(3600);

/// Eight nodes, two of which may be unavailable at a time.
const FLEET: &str = "
pools: [{name: a, nodes: 6}, {name: b, nodes: 2, gpus: 4}]
policy: {driver: {upgradePolicy: {autoUpgrade: true, maxParallelUpgrades: 0, maxUnavailable: 25%}}}
";

fn timeline_contains(report: &Report, words: &str) -> bool {
    report.timeline.iter().any(|entry| entry.what.contains(words))
}

#[test]
fn an_install_brings_all_nodes_to_serve() {
    let report = play(Scenario::Install, FLEET, HOUR);
    assert!(report.is_good(), "{}", report.text(Paint::Plain));
    assert_eq!((report.nodes, report.verdict.as_str()), (8, "ready"));
    assert!(timeline_contains(&report, "ClusterPolicy: ready"), "{:?}", report.timeline);
    assert!(!timeline_contains(&report, "upgraded"), "{:?}", report.timeline);
    assert!(report.gpu_hours_lost > report.node_hours_lost, "{report:?}");
}

#[test]
fn a_driver_upgrade_ends_within_its_budget() {
    let report = play(Scenario::DriverUpgrade, FLEET, 2 * HOUR);
    assert!(report.is_good(), "{}", report.text(Paint::Plain));
    let budget = report.budget.unwrap();
    assert_eq!((budget.allowed, report.end.done), (2, 8));
    assert!((1..=2).contains(&budget.most), "{budget:?}");
    assert!(timeline_contains(&report, "90 % of the nodes are upgraded"), "{:?}", report.timeline);
}

#[test]
fn a_driver_that_does_not_load_is_seen_until_nodes_are_mended() {
    let bad = format!("{FLEET}failures: {{driver: 40%, repair: 20h}}\n");
    let report = play(Scenario::Failures, &bad, 3 * HOUR);
    assert!(!report.is_good(), "{}", report.text(Paint::Plain));
    assert!(report.end.failed > 0, "{:?}", report.end);
    let repaired = format!("{FLEET}failures: {{driver: 40%, repair: 2h}}\n");
    let report = play(Scenario::Failures, &repaired, 5 * HOUR);
    assert!(timeline_contains(&report, "are mended"), "{:?}", report.timeline);
}

#[test]
fn an_api_server_that_is_away_delays_and_breaks_nothing() {
    let report = play(Scenario::Outage, FLEET, 4 * HOUR);
    assert!(report.is_good(), "{}", report.text(Paint::Plain));
    assert!(timeline_contains(&report, "the API server is back"), "{:?}", report.timeline);
}

#[test]
fn another_kernel_takes_every_node_of_the_pool_through_a_reboot() {
    let fleet: Fleet = serde_saphyr::from_str(FLEET).unwrap();
    let choice = Choice { scenario: Scenario::OsUpgrade, driver: None, pool: Some("a".into()), until: 3 * HOUR };
    let report = simulate(fleet, None, options(), &choice).unwrap();
    assert!(report.is_good(), "{}", report.text(Paint::Plain));
    assert!(timeline_contains(&report, "6 nodes get another kernel, 2 at a time"), "{:?}", report.timeline);
    assert!(timeline_contains(&report, "all nodes have been booted"), "{:?}", report.timeline);
    assert!(report.node_hours_lost >= 1.0, "six reboots of ten minutes: {}", report.node_hours_lost);
}

#[test]
fn jobs_that_an_upgrade_ends_are_counted() {
    let busy = format!("{FLEET}jobs: {{share: 50%, length: 1h}}\n");
    let report = play(Scenario::DriverUpgrade, &busy, 3 * HOUR);
    let jobs = report.jobs.unwrap();
    assert!(jobs.finished > 0, "{jobs:?}");
}

#[test]
fn a_pool_that_is_not_there_is_refused_with_those_that_are() {
    let fleet: Fleet = serde_saphyr::from_str(FLEET).unwrap();
    let choice = Choice { scenario: Scenario::OsUpgrade, driver: None, pool: Some("c".into()), until: HOUR };
    let error = simulate(fleet, None, options(), &choice).unwrap_err().to_string();
    assert_eq!(error, "there is no pool \"c\": choose one of a, b");
}

#[test]
fn a_pool_is_refused_where_it_would_change_nothing() {
    let choice = Choice { scenario: Scenario::Install, driver: None, pool: Some("a".into()), until: HOUR };
    let error = simulate(serde_saphyr::from_str(FLEET).unwrap(), None, options(), &choice).unwrap_err().to_string();
    assert_eq!(error, "--pool a is for os-upgrade, and this scenario is about all nodes: leave it out");
}

#[test]
fn a_driver_is_refused_where_there_is_no_new_one() {
    let choice = Choice { scenario: Scenario::Install, driver: Some("580.95.05".into()), pool: None, until: HOUR };
    let error = simulate(serde_saphyr::from_str(FLEET).unwrap(), None, options(), &choice).unwrap_err().to_string();
    assert_eq!(error, "--driver 580.95.05 is for a new driver, and this scenario has none: leave it out");
}
