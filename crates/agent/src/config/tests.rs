//! Parsing of config files, and the error messages for invalid ones.

use std::time::Duration;

use proptest::prelude::*;

use super::*;

fn config(text: &str) -> Config {
    let parsed = parse(text).expect("a config");
    assert_eq!(parsed.warnings, Vec::<String>::new());
    parsed.config
}

fn wrong(text: &str) -> String {
    parse(text).expect_err("a mistake").to_string()
}

fn shared(text: &str) -> Shared {
    config(text).sharing.shared().cloned().expect("sharing")
}

#[test]
fn a_file_that_says_nothing_is_a_config() {
    for text in ["", "\n", "# nothing\n", "version: v1", "version: \"\"", "{}", "flags:\n"] {
        assert_eq!(parse(text).expect(text), Parsed::default(), "{text:?}");
    }
}

#[test]
fn flags_are_read_in_every_form() {
    let text = "
version: v1
flags:
  migStrategy: mixed
  failOnInitError: false
  nvidiaDriverRoot: /run/nvidia/driver
  gdsEnabled: true
  mpsRoot: /run/nvidia/mps
  plugin:
    passDeviceSpecs: true
    deviceListStrategy: [volume-mounts, envvar]
    deviceIDStrategy: index
    sharedDevicesAllocationPolicy: packed
    containerDriverRoot: /host
  gfd:
    sleepInterval: 1m30s
imex:
  channelIDs: [0]
  required: true
";
    let flags = config(text).flags;
    assert_eq!(flags.mig_strategy, Some(MigStrategy::Mixed));
    assert_eq!(flags.fail_on_init_error, Some(false));
    assert_eq!(flags.driver_root, Some("/run/nvidia/driver".into()));
    assert_eq!(flags.container_driver_root, Some("/host".into()));
    assert_eq!((flags.gds, flags.mofed), (Some(true), None));
    assert_eq!(flags.device_list, Some(vec![DeviceListStrategy::Envvar, DeviceListStrategy::VolumeMounts]));
    assert_eq!(flags.device_id, Some(DeviceIdStrategy::Index));
    assert_eq!(flags.allocation, Some(AllocationPolicy::Packed));
    assert_eq!(flags.sleep_interval, Some(Interval::Every(Duration::from_secs(90))));
    assert_eq!((flags.imex_channels, flags.imex_required), (Some(vec![0]), Some(true)));
}

#[test]
fn json_is_read_too() {
    let flags = config(r#"{"version":"v1","flags":{"plugin":{"deviceListStrategy":"cdi-cri,cdi-annotations"}}}"#).flags;
    assert_eq!(flags.device_list, Some(vec![DeviceListStrategy::CdiAnnotations, DeviceListStrategy::CdiCri]));
}

#[test]
fn durations_are_text_numbers_or_never() {
    let read = |value: &str| config(&format!("flags: {{gfd: {{sleepInterval: {value}}}}}")).flags.sleep_interval;
    assert_eq!(read("60s"), Some(Interval::Every(Duration::from_secs(60))));
    assert_eq!(read("1.5h"), Some(Interval::Every(Duration::from_secs(5400))));
    assert_eq!(read("1000000000"), Some(Interval::Every(Duration::from_secs(1))));
    assert_eq!(read("infinite"), Some(Interval::Infinite));
    assert!(wrong("flags: {gfd: {sleepInterval: soon}}").contains("write 60s"));
}

#[test]
fn what_no_one_reads_is_said() {
    let text = "flags: {migStrateggy: single}\nresources: {gpus: [{pattern: '*', name: gpu}]}\nmore: 1";
    let warnings = parse(text).expect("a config").warnings;
    assert_eq!(warnings.len(), 3, "{warnings:?}");
    assert!(warnings.iter().any(|warning| warning.contains("flags.migStrateggy")), "{warnings:?}");
}

#[test]
fn a_mistake_is_named_with_its_field_its_value_and_what_to_write() {
    let cases = [
        ("version: v2", "version", "v2", "v1"),
        ("flags: {migStrategy: both}", "flags.migStrategy", "both", "none, single, mixed"),
        ("flags: {plugin: {deviceListStrategy: env}}", "flags.plugin.deviceListStrategy", "env", "envvar"),
        ("flags: {plugin: {deviceIDStrategy: name}}", "flags.plugin.deviceIDStrategy", "name", "uuid, index"),
        ("flags: {failOnInitError: maybe}", "flags.failOnInitError", "maybe", "true nor false"),
        ("flags: 3", "flags", "3", "table"),
        ("imex: {channelIDs: [1]}", "imex.channelIDs", "[1]", "[0]"),
        ("imex: {channelIDs: [0, 1]}", "imex.channelIDs", "[0, 1]", "[0]"),
        ("sharing: {timeSlicing: {}}", "sharing.timeSlicing", "{}", "resources"),
        ("sharing: {mps: {resources: [{replicas: 2}]}}", "sharing.mps.resources[0]", "replicas", "name"),
        ("sharing: {mps: {resources: [{name: gpu}]}}", "sharing.mps.resources[0]", "gpu", "2 or more"),
        (
            "sharing: {mps: {resources: [{name: gpu, replicas: 1}]}}",
            "sharing.mps.resources[0].replicas",
            "1",
            "2 or more",
        ),
        ("sharing: {mps: {resources: [{name: gpu, replicas: -2}]}}", "resources[0].replicas", "-2", "2 or more"),
        ("sharing: {mps: {resources: [{name: GPU, replicas: 2}]}}", "resources[0].name", "GPU", "lower case"),
        ("sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: some}]}}", "devices", "some", "write all"),
        ("sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: 0}]}}", "devices", "0", "write all"),
        ("sharing: {mps: {resources: [{name: gpu, replicas: 2, devices: [x]}]}}", "devices[0]", "x", "write all"),
        ("{", "config file", "", "YAML"),
    ];
    for (text, field, value, fix) in cases {
        let said = wrong(text);
        for part in [field, value, fix] {
            assert!(said.contains(part), "{text}: {said}");
        }
    }
}

#[test]
fn imex_channels_are_none_or_the_first() {
    for text in ["imex: {channelIDs: null}", "imex: {channelIDs: []}", "imex: {channelIDs: [0]}"] {
        config(text);
    }
}

#[test]
fn shared_devices_are_all_a_count_or_a_list() {
    let uuid = "b1028956-cfa2-0990-bf4a-5da9abb51763";
    let lists = ["all", "2", "[0, '1:2']"].map(str::to_owned).into_iter();
    let uuids = [format!("[GPU-{uuid}]"), format!("[MIG-{uuid}, MIG-GPU-{uuid}/1/0]")];
    for devices in lists.chain(uuids) {
        let text = format!("sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: 2, devices: {devices}}}]}}}}");
        parse(&text).unwrap_or_else(|wrong| panic!("{devices}: {wrong}"));
    }
    for devices in ["[]", "[GPU-1]", "['1:']", "[-1]", "MIG", "[MIG-GPU-1/2]", "true", "{}"] {
        let text = format!("sharing: {{timeSlicing: {{resources: [{{name: gpu, replicas: 2, devices: {devices}}}]}}}}");
        assert!(parse(&text).is_err(), "{devices}");
    }
}

#[test]
fn a_shared_resource_is_renamed_only_by_default() {
    let renamed = shared("sharing: {timeSlicing: {renameByDefault: true, resources: [{name: gpu, replicas: 4}]}}");
    assert_eq!(renamed.resources[0].advertised_name().as_str(), "nvidia.com/gpu.shared");
    let own = "sharing: {timeSlicing: {resources: [{name: nvidia.com/gpu, replicas: 4, rename: mine}]}}";
    let parsed = parse(own).expect("a config");
    assert_eq!(
        parsed.config.sharing.shared().expect("sharing").resources[0].advertised_name().as_str(),
        "nvidia.com/gpu"
    );
    assert!(parsed.warnings[0].contains("renameByDefault"));
}

#[test]
fn only_mps_refuses_more_than_one_by_default() {
    let fails = |text: &str| shared(text).fail_requests_greater_than_one;
    assert!(!fails("sharing: {timeSlicing: {resources: [{name: gpu, replicas: 2}]}}"));
    assert!(fails("sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}"));
    assert!(!fails("sharing: {mps: {failRequestsGreaterThanOne: false, resources: [{name: gpu, replicas: 2}]}}"));
}

#[test]
fn mps_wins_over_turns() {
    let both =
        "sharing: {mps: {resources: [{name: gpu, replicas: 3}]}, timeSlicing: {resources: [{name: gpu, replicas: 2}]}}";
    let sharing = config(both).sharing;
    assert_eq!(sharing.strategy(), SharingStrategy::Mps);
    assert_eq!(sharing.of(&ResourceName::gpu()).map(|shared| shared.replicas), Some(3));
    assert_eq!(config("").sharing.strategy(), SharingStrategy::None);
}

#[test]
fn names_get_their_prefix_and_are_checked() {
    let parse = |text: &str| ResourceName::parse("name", text).map(|name| name.to_string());
    assert_eq!(parse("gpu").as_deref(), Ok("nvidia.com/gpu"));
    assert_eq!(parse("nvidia.com/mig-1g.5gb").as_deref(), Ok("nvidia.com/mig-1g.5gb"));
    let longest = "a".repeat(63 - "nvidia.com/".len());
    assert!(parse(&longest).is_ok());
    for text in [&format!("{longest}a"), "", "Gpu", "-gpu", "gpu-", "a..b", "a/b", "a_b"] {
        assert!(parse(text).is_err(), "{text}");
    }
}

#[test]
fn patterns_match_whole_names() {
    let cases = [
        ("1g.24gb", "1g.24gb", true),
        ("1g.24gb", "1g.24gb+gfx", false),
        ("24gb", "1g.24gb", false),
        ("1g.24gb+me.all", "1g.24gb+me.all", true),
        ("1g.24gb+me", "1g.24gb+me.all", false),
        ("1g.24gb-me", "1g.24gb", false),
        ("*", "anything", true),
        ("*", "", true),
        ("1g.*", "1g.24gb+me", true),
        ("*gb", "1g.24gb", true),
        ("*gb", "1g.24gb-me", false),
        ("a*b*c", "aXbYc", true),
        ("a*a", "a", false),
        ("", "", true),
        ("", "x", false),
    ];
    for (pattern, text, fits) in cases {
        assert_eq!(Pattern::new(pattern).matches(text), fits, "{pattern} on {text}");
    }
}

#[test]
fn a_higher_source_wins_and_a_lower_one_fills() {
    let high = Flags { gds: Some(false), ..Flags::default() };
    let low = Flags { gds: Some(true), mofed: Some(true), ..Flags::default() };
    let both = high.over(low);
    assert_eq!((both.gds, both.mofed, both.gdrcopy), (Some(false), Some(true), None));
}

proptest! {
    #[test]
    fn any_text_is_answered(text in "\\PC{0,80}") {
        let _ = parse(&text);
    }

    #[test]
    fn any_words_in_any_place_are_answered(key in "version|flags|sharing|imex|resources", value in "[\\[{a-z0-9:, }\\]]{0,24}") {
        let _ = parse(&format!("{key}: {value}"));
    }

    #[test]
    fn a_pattern_without_a_star_matches_itself_alone(text in "[a-z0-9.+-]{0,12}", other in "[a-z0-9.+-]{0,12}") {
        prop_assert_eq!(Pattern::new(text.clone()).matches(&other), text == other);
    }

    #[test]
    fn any_device_and_duration_is_answered(text in "\\PC{0,40}") {
        let _ = text.parse::<DeviceRef>();
        let _ = Interval::parse(&text);
    }
}
