//! How many nodes may begin.

use super::*;

fn fleet(states: &[(usize, State)]) -> Vec<Machine> {
    let states = states.iter().flat_map(|(count, state)| std::iter::repeat_n(*state, *count));
    states.enumerate().map(|(index, state)| Machine::old(&format!("n{index}")).state(state)).collect()
}

fn limits(max_parallel: usize, max_unavailable: Amount) -> Settings {
    Settings { max_parallel, max_unavailable: Some(max_unavailable), ..generous() }
}

/// How many nodes begin.
fn begin(settings: &Settings, machines: &[Machine]) -> usize {
    let pass = pass(settings, machines, NOW);
    let begins = |step: &&Step| step.events.iter().any(|note| note.message.starts_with("driver upgrade begins"));
    pass.steps.iter().filter(begins).count()
}

#[test]
fn all_begin_without_limits() {
    assert_eq!(begin(&limits(0, Amount::Percent(100)), &fleet(&[(5, State::Required)])), 5);
}

#[test]
fn cordoned_nodes_need_no_slot() {
    let mut machines = fleet(&[(5, State::Required)]);
    machines.iter_mut().take(2).for_each(|machine| machine.unschedulable = true);
    assert_eq!(pass(&limits(0, Amount::Percent(50)), &machines, NOW).counts.available, 1);
    assert_eq!(begin(&limits(0, Amount::Percent(50)), &machines), 3);
    assert_eq!(begin(&limits(1, Amount::Count(0)), &machines), 2, "not even when there is none");
    // Whichever comes first in the list.
    machines.reverse();
    assert_eq!(begin(&limits(0, Amount::Percent(50)), &machines), 3);
}

#[test]
fn nodes_out_of_use_for_other_reasons_count() {
    let mut machines = fleet(&[(3, State::Required), (2, State::Done)]);
    machines
        .iter_mut()
        .skip(3)
        .for_each(|machine| *machine = Machine::new(&machine.name).state(State::Done).cordoned());
    assert_eq!(begin(&limits(0, Amount::Percent(50)), &machines), 1);
    machines.iter_mut().skip(3).for_each(|machine| (machine.unschedulable, machine.ready) = (false, false));
    assert_eq!(begin(&limits(0, Amount::Percent(50)), &machines), 1);
}

#[test]
fn the_smaller_limit_counts() {
    assert_eq!(begin(&limits(3, Amount::Count(2)), &fleet(&[(5, State::Required)])), 2);
    assert_eq!(begin(&limits(2, Amount::Count(3)), &fleet(&[(5, State::Required)])), 2);
}

#[test]
fn nodes_about_to_be_cordoned_count() {
    let machines = fleet(&[(2, State::Required), (3, State::Cordon)]);
    assert_eq!(begin(&limits(4, Amount::Count(4)), &machines), 1);
}

#[test]
fn a_share_is_rounded_up() {
    assert_eq!(Amount::Percent(25).of(5), 2);
    assert_eq!(Amount::Percent(0).of(5), 0);
    let fleet = Fleet { total: 10, in_progress: 0, required: 10, unavailable: 0 };
    assert_eq!(fleet.slots(0, Some(Amount::Percent(25))), 3);
    assert_eq!(fleet.slots(0, None), 10);
    assert_eq!(Fleet { unavailable: 4, ..fleet }.slots(0, Some(Amount::Percent(25))), 0);
}

#[test]
fn nodes_that_others_maintain_do_not_count() {
    let machines = fleet(&[(2, State::Required), (2, State::Maintenance), (1, State::PostMaintenance)]);
    let settings = limits(0, Amount::Percent(50));
    assert_eq!(pass(&settings, &machines, NOW).counts.available, 1, "half of two");
}

#[test]
fn a_limit_of_none_is_named() {
    let pass = pass(&limits(1, Amount::Count(0)), &fleet(&[(1, State::Required)]), NOW);
    assert!(pass.steps.is_empty());
    assert_eq!(
        pass.summary.examples[0].reason,
        "waits for ever: upgradePolicy.maxUnavailable lets no node be out of use; raise it"
    );
}

#[test]
fn users_choose_who_comes_first() {
    let mut machines = fleet(&[(3, State::Required)]);
    machines[2].annotations.insert(keys::ORDER.into(), "1".into());
    let pass = pass(&limits(1, Amount::Count(1)), &machines, NOW);
    assert_eq!(pass.steps.iter().map(|step| step.node.as_str()).collect::<Vec<_>>(), ["n2"]);
}

#[test]
fn deciding_twice_decides_the_same() {
    let machines = fleet(&[(5, State::Required), (3, State::Validation), (2, State::Failed)]);
    let mut shuffled = machines.clone();
    shuffled.reverse();
    let settings = limits(6, Amount::Count(8));
    let sorted = |machines: &[Machine]| {
        let mut steps = pass(&settings, machines, NOW).steps;
        steps.sort_by(|a, b| a.node.cmp(&b.node));
        steps
    };
    assert_eq!(sorted(&machines), sorted(&shuffled));
}
