//! Another operator takes nodes out of use.

use super::*;

fn requestor() -> Requestor {
    Requestor { namespace: "default".into(), id: "capstan".into(), prefix: "nvidia-operator".into() }
}

fn settings() -> Settings {
    // Its budget is the other operator's.
    Settings { requestor: Some(requestor()), max_unavailable: Some(Amount::Count(0)), ..generous() }
}

fn live(requestor: &'static str, additional: &[&'static str]) -> Option<Maintenance<'static>> {
    Some(Maintenance { resource_version: "7", requestor, additional: additional.to_vec(), ready: false, failed: None })
}

fn waiting(maintenance: Option<Maintenance<'static>>) -> Machine {
    let machine =
        Machine::old("a").state(State::Maintenance).annotated(keys::REQUESTOR, "true").annotated(keys::SINCE, NOW);
    machine.with(|machine| machine.maintenance = maintenance)
}

#[test]
fn it_is_off_unless_switched_on() {
    assert_eq!(Requestor::of(|_| None), None);
    let on = Requestor::of(|name| match name {
        "MAINTENANCE_OPERATOR_ENABLED" => Some("true".into()),
        "MAINTENANCE_OPERATOR_REQUESTOR_ID" => Some("me".into()),
        _ => None,
    });
    assert_eq!(on, Some(Requestor { id: "me".into(), ..requestor() }));
}

#[test]
fn maintenance_is_asked_for_after_the_journal_says_so() {
    let (node, step) = after(&settings(), &Machine::old("a").state(State::Required), NOW);
    assert_eq!((node.current(), node.has(keys::REQUESTOR), node.unschedulable), (State::Maintenance, true, false));
    let Some(MaintenanceAction::Create(request)) = step.unwrap().maintenance else { panic!("no request") };
    assert_eq!(request.metadata.name.as_deref(), Some("nvidia-operator-a"));
    assert_eq!(request.spec.requestor_id.as_deref(), Some("capstan"));
}

#[test]
fn a_request_of_others_is_joined() {
    let machine =
        Machine::old("a").state(State::Required).with(|machine| machine.maintenance = live("network", &["storage"]));
    let Some(MaintenanceAction::Share { additional, resource_version, .. }) =
        after(&settings(), &machine, NOW).1.unwrap().maintenance
    else {
        panic!("not joined")
    };
    assert_eq!(
        (additional.as_slice(), resource_version.as_str()),
        (["storage".to_owned(), "capstan".to_owned()].as_slice(), "7")
    );
}

#[test]
fn a_request_that_is_lost_is_made_again_and_then_given_up() {
    let machine = waiting(None);
    let (node, step) = after(&settings(), &machine, NOW + 10);
    assert_eq!(node.current(), State::Maintenance);
    assert!(matches!(step.unwrap().maintenance, Some(MaintenanceAction::Create(_))));
    let (node, _) = after(&settings(), &machine, NOW + 61);
    assert_eq!((node.current(), node.has(keys::REQUESTOR)), (State::Required, false));
}

#[test]
fn the_driver_is_replaced_once_the_node_is_out_of_use() {
    let mut maintenance = live("capstan", &[]);
    let (node, step) = after(&settings(), &waiting(maintenance.clone()), NOW + 1000);
    assert_eq!((node.current(), step), (State::Maintenance, None));
    maintenance.as_mut().unwrap().ready = true;
    let (node, step) = after(&settings(), &waiting(maintenance.clone()).cordoned(), NOW);
    assert_eq!(node.current(), State::PodRestart);
    assert!(step.unwrap().delete_driver.is_some());
    let failed = Maintenance { ready: false, failed: Some("drain failed"), ..maintenance.unwrap() };
    let (node, _) = after(&settings(), &waiting(Some(failed)), NOW);
    assert_eq!(node.annotations[keys::REASON], "MaintenanceFailed: NodeMaintenance nvidia-operator-a: drain failed");
}

#[test]
fn the_request_ends_before_the_upgrade_is_done() {
    let uncordon = |maintenance| {
        let machine = Machine::new("a").state(State::Uncordon).cordoned().annotated(keys::REQUESTOR, "true");
        machine.with(|machine| machine.maintenance = maintenance)
    };
    let (node, step) = after(&settings(), &uncordon(live("capstan", &[])), NOW);
    assert_eq!(node.current(), State::Uncordon);
    assert!(matches!(step.unwrap().maintenance, Some(MaintenanceAction::Delete { .. })));
    let (_, step) = after(&settings(), &uncordon(live("network", &["capstan", "storage"])), NOW);
    let Some(MaintenanceAction::Share { additional, .. }) = step.unwrap().maintenance else { panic!("not left") };
    assert_eq!(additional, ["storage"]);
    for gone in [None, live("network", &[])] {
        let (node, step) = after(&settings(), &uncordon(gone), NOW);
        assert_eq!((node.current(), node.has(keys::REQUESTOR)), (State::Done, false));
        assert!(node.unschedulable && step.unwrap().maintenance.is_none(), "the other operator uncordons");
    }
}

#[test]
fn nodes_under_way_finish_in_their_own_mode() {
    let machine = Machine::old("a").state(State::Cordon);
    assert_eq!(after(&settings(), &machine, NOW).0.current(), State::PodDeletion);
    let (node, _) = after(&settings(), &Machine::new("a").state(State::Uncordon).cordoned(), NOW);
    assert!(node.current() == State::Done && !node.unschedulable);
}
