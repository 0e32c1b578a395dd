//! Where a value comes from, and which values do not go together.

use clap::Parser;

use super::*;
use crate::config::{AllocationPolicy, DeviceListStrategy, MigStrategy};

#[derive(Parser)]
struct Cli {
    #[command(flatten)]
    options: Options,
}

fn settings(arguments: &[&str], file: &str) -> Result<Settings, String> {
    let cli = Cli::try_parse_from(std::iter::once(&"plugin").chain(arguments)).map_err(|error| error.to_string())?;
    let config = crate::config::parse(file).map_err(|wrong| wrong.to_string())?.config;
    let flags = cli.options.flags().map_err(|wrong| wrong.to_string())?;
    Settings::resolve(flags, config).map_err(|wrong| wrong.to_string())
}

#[test]
fn the_command_line_wins_over_the_file_and_the_file_over_defaults() {
    let file = "flags: {migStrategy: mixed, failOnInitError: false, plugin: {passDeviceSpecs: true}}";
    let settings = settings(&["--mig-strategy=single", "--pass-device-specs=0"], file).expect("settings");
    assert_eq!(settings.mig, MigStrategy::Single);
    assert!(!settings.fail_on_init_error && !settings.pass_device_specs);
    assert_eq!(settings.device_list, [DeviceListStrategy::Envvar]);
    assert_eq!(settings.allocation, AllocationPolicy::Distributed);
    assert_eq!(settings.cdi_hook, std::path::Path::new("/usr/bin/nvidia-ctk"));
}

#[test]
fn older_names_of_flags_are_known() {
    let settings = settings(&["--nvidia-driver-root=/a", "--container-driver-root=/b", "--nvidia-ctk-path=/c"], "");
    let settings = settings.expect("settings");
    assert_eq!(settings.driver_root, Some("/a".into()));
    assert_eq!(settings.container_driver_root, Some("/b".into()));
    assert_eq!(settings.cdi_hook, std::path::Path::new("/c"));
}

#[test]
fn an_empty_word_is_not_said() {
    let settings =
        settings(&["--mig-strategy=", "--device-list-strategy="], "flags: {migStrategy: single}").expect("settings");
    assert_eq!(settings.mig, MigStrategy::Single);
}

#[test]
fn mistakes_name_the_flag_the_value_and_the_way_out() {
    let mps = "sharing: {mps: {resources: [{name: gpu, replicas: 2}]}}";
    let cases: [(&[&str], &str, &[&str]); 9] = [
        (&["--mig-strategy=both"], "", &["--mig-strategy", "'both'", "none, single, mixed"]),
        (&["--device-list-strategy=envvar,env"], "", &["--device-list-strategy", "'env'", "cdi-cri"]),
        (&["--device-id-strategy=name"], "", &["--device-id-strategy", "'name'", "uuid, index"]),
        (&["--shared-devices-allocation-policy=x"], "", &["policy", "'x'", "distributed, packed"]),
        (&["--device-discovery-strategy=x"], "", &["discovery", "'x'", "auto, nvml, tegra"]),
        (&["--imex-channel-ids=1"], "", &["--imex-channel-ids", "[1]", "[0]"]),
        (&["--imex-channel-ids=a"], "", &["--imex-channel-ids", "'a'", "write 0"]),
        (&["--mig-strategy=mixed", "--mps-root=/x"], mps, &["migStrategy", "mixed", "timeSlicing"]),
        (&[], mps, &["mpsRoot", "host's directory"]),
    ];
    for (arguments, file, said) in cases {
        let error = settings(arguments, file).expect_err("a mistake");
        assert!(said.iter().all(|part| error.contains(part)), "{arguments:?}: {error}");
    }
}

#[test]
fn channels_are_written_in_any_way() {
    for (text, channels) in [("", vec![]), ("[]", vec![]), ("0", vec![0]), ("[0]", vec![0])] {
        assert_eq!(
            settings(&[&format!("--imex-channel-ids={text}")], "").map(|it| it.imex_channels),
            Ok(channels),
            "{text}"
        );
    }
}
