//! Specs of recorded hardware on a fake root.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use capstan_cdi::Spec;
use capstan_hw::fake::{Fake, Model, Recording, Root, node};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::{Inventory, Source};
use clap::Parser;
use proptest::prelude::*;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::Cx;

/// A machine with the driver below `prefix`, laid out as the H200's image is.
pub(crate) struct Machine {
    pub dir: tempfile::TempDir,
}

impl Machine {
    pub(crate) fn new(inventory: &Inventory, prefix: &str) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        Root::write(dir.path(), inventory).expect("a root");
        let machine = Self { dir };
        machine.install(&inventory.driver, prefix);
        machine
    }

    pub(crate) fn path(&self) -> &Path {
        self.dir.path()
    }

    fn file(&self, name: &str) {
        let path = self.path().join(name);
        std::fs::create_dir_all(path.parent().expect("a parent")).expect("directories");
        std::fs::write(&path, "x").expect("a file");
    }

    fn install(&self, version: &str, prefix: &str) {
        let lib = format!("{prefix}lib64");
        for (name, soname) in [("libcuda", "1"), ("libnvidia-ml", "1"), ("libGLX_nvidia", "0"), ("libnvidia-tls", "")] {
            self.file(&format!("{lib}/{name}.so.{version}"));
            let dir = self.path().join(&lib);
            if soname.is_empty() {
                let _ = symlink(format!("{name}.so.{version}"), dir.join(format!("{name}.so")));
            } else {
                let _ = symlink(format!("{name}.so.{version}"), dir.join(format!("{name}.so.{soname}")));
                let _ = symlink(format!("{name}.so.{soname}"), dir.join(format!("{name}.so")));
            }
        }
        self.file(&format!("{lib}/vdpau/libvdpau_nvidia.so.{version}"));
        self.file(&format!("{lib}/libother.so.1"));
        self.file(&format!("{prefix}firmware/nvidia/{version}/gsp_ga10x.bin"));
        self.file(&format!("{prefix}share/glvnd/egl_vendor.d/10_nvidia.json"));
        self.file(&format!("{prefix}share/vulkan/icd.d/nvidia_icd.json"));
        for program in ["nvidia-smi", "nvidia-persistenced"] {
            use std::os::unix::fs::PermissionsExt;
            let name = format!("{prefix}bin/{program}");
            self.file(&name);
            let mode = std::fs::Permissions::from_mode(0o755);
            std::fs::set_permissions(self.path().join(name), mode).expect("a mode");
        }
    }

    /// Roots of a machine whose root is this directory.
    fn roots_at(&self, driver: &str) -> Roots {
        let here = self.path();
        Roots {
            host: Path::new("/").join(driver),
            here: here.join(driver),
            dev_host: "/".into(),
            dev_here: here.to_owned(),
        }
    }

    fn settings(&self) -> Settings {
        Settings { root: self.path().to_owned(), ..Settings::default() }
    }
}

fn shown(spec: &Spec) -> String {
    spec.to_text(capstan_cdi::Format::Yaml).expect("text")
}

fn h200(driver: &str, prefix: &str) -> Spec {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, prefix);
    generate(&inventory, &machine.roots_at(driver), &machine.settings()).expect("a spec")
}

#[test]
fn a_gpu_without_a_device_node_does_not_keep_the_others_from_containers() {
    let recording = node(Model::H200, 3);
    let machine = Machine::new(&recording.inventory, "usr/");
    let generate = || {
        let roots = Roots::new("/", machine.path(), None);
        let settings = Settings { root: machine.path().into(), ..Settings::default() };
        generate(&recording.inventory, &roots, &settings)
    };
    std::fs::remove_file(machine.path().join("dev/nvidia1")).expect("removed");
    let spec = generate().expect("a spec");
    let indices: Vec<&str> =
        spec.devices.iter().map(|device| device.name.as_str()).filter(|name| name.len() == 1).collect();
    assert_eq!(indices, ["0", "2"]);
    for name in ["dev/nvidia0", "dev/nvidia2"] {
        std::fs::remove_file(machine.path().join(name)).expect("removed");
    }
    let nothing = generate().expect_err("no GPU can be used").to_string();
    assert!(nothing.contains("no GPU has a device node"), "{nothing}");
}

#[test]
fn the_recorded_h200_with_its_driver_in_the_usual_place() {
    insta::assert_snapshot!(shown(&h200("", "usr/")));
}

#[test]
fn the_recorded_h200_with_its_driver_in_a_root_of_its_own() {
    insta::assert_snapshot!(shown(&h200("usr/local/nvidia", "usr/local/nvidia/")));
}

#[test]
fn the_recorded_h200_cut_into_mig_devices() {
    let inventory = Recording::h200_mig().inventory;
    let machine = Machine::new(&inventory, "usr/");
    let spec = generate(&inventory, &machine.roots_at(""), &machine.settings()).expect("a spec");
    let devices = Spec { container_edits: capstan_cdi::ContainerEdits::default(), ..spec };
    insta::assert_snapshot!(shown(&devices));
}

#[test]
fn a_driver_where_only_the_loaders_cache_knows_is_found() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "opt/driver/");
    let cache = ldcache::tests::cache(&[(0x0303, "/opt/driver/lib64/libcuda.so.1")]);
    std::fs::create_dir_all(machine.path().join("etc")).expect("a directory");
    std::fs::write(machine.path().join("etc/ld.so.cache"), cache).expect("a cache");
    let spec = generate(&inventory, &machine.roots_at(""), &machine.settings()).expect("a spec");
    let paths: Vec<&str> = spec.container_edits.mounts.iter().map(|mount| mount.container_path.as_str()).collect();
    assert!(paths.contains(&"/opt/driver/lib64/libcuda.so.580.159.04"), "{paths:?}");
    assert!(paths.contains(&"/opt/driver/bin/nvidia-smi"), "{paths:?}");
}

#[test]
fn a_container_driver_has_the_hosts_paths() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    let here = machine.path().to_owned();
    let roots = Roots {
        host: "/run/nvidia/driver".into(),
        here: here.clone(),
        dev_host: "/run/nvidia/driver".into(),
        dev_here: here,
    };
    let spec = generate(&inventory, &roots, &machine.settings()).expect("a spec");
    let node = &spec.devices[0].container_edits.device_nodes[0];
    let host = Some("/run/nvidia/driver/dev/nvidia0".to_owned());
    assert_eq!((node.path.as_str(), &node.host_path), ("/dev/nvidia0", &host));
    let mounts = &spec.container_edits.mounts;
    assert!(
        mounts.iter().all(|mount| mount.host_path == format!("/run/nvidia/driver{}", mount.container_path)
            || mount.container_path.starts_with("/etc/")),
        "{mounts:?}"
    );
    let text = shown(&spec);
    assert!(!text.contains(&machine.path().display().to_string()), "{text}");
}

#[test]
fn a_driver_without_libcuda_is_refused() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    std::fs::remove_file(machine.path().join("usr/lib64/libcuda.so.580.159.04")).expect("removed");
    let error = generate(&inventory, &machine.roots_at(""), &machine.settings()).expect_err("no libcuda");
    assert!(error.to_string().contains("no libcuda.so.580.159.04"), "{error}");
}

fn names(spec: &Spec) -> Vec<String> {
    spec.devices.iter().map(|device| device.name.clone()).collect()
}

#[test]
fn devices_are_chosen_and_named() {
    let inventory = node(Model::H100, 2).with_mig(1, &["1g.10gb", "2g.20gb"]).inventory;
    let machine = Machine::new(&inventory, "usr/");
    let (gpu, mig) = (inventory.gpus[0].uuid.clone(), inventory.gpus[1].mig_devices[1].uuid.clone());
    use NameStrategy::{Index, TypeIndex};
    let cases: [(&[&str], &[NameStrategy], &[&str]); 6] = [
        (&["all"], &[Index], &["0", "1:0", "1:1", "all"]),
        (&["all"], &[TypeIndex], &["all", "gpu0", "mig1:0", "mig1:1"]),
        (&["0"], &[Index], &["0", "all"]),
        (&["1:1"], &[Index], &["1:1", "all"]),
        (&[&gpu, &mig], &[Index], &["0", "1:1", "all"]),
        (&["none"], &[Index], &["none"]),
    ];
    for (ids, strategies, wanted) in cases {
        let devices = ids.iter().map(|id| (*id).to_owned()).collect();
        let settings = Settings { devices, names: strategies.to_vec(), ..machine.settings() };
        let spec = generate(&inventory, &machine.roots_at(""), &settings).expect("a spec");
        assert_eq!(names(&spec), wanted, "{ids:?}");
    }
    for wrong in ["2", "1", "0:0", "GPU-x", ""] {
        let settings = Settings { devices: vec![wrong.into()], ..machine.settings() };
        let error = generate(&inventory, &machine.roots_at(""), &settings).expect_err(wrong).to_string();
        assert!(error.contains("there is no device"), "{error}");
    }
    let twice = Settings { devices: vec!["0".into(), "0".into()], ..machine.settings() };
    assert!(generate(&inventory, &machine.roots_at(""), &twice).is_err());
    let alone = Settings { all_device: false, names: vec![Index], ..machine.settings() };
    let spec = generate(&inventory, &machine.roots_at(""), &alone).expect("a spec");
    assert_eq!(names(&spec), ["0", "1:0", "1:1"]);
}

#[test]
fn a_device_without_the_name_that_is_wanted_is_refused() {
    let mut inventory = Recording::h200().inventory;
    inventory.gpus[0].uuid.clear();
    let machine = Machine::new(&inventory, "usr/");
    let error = generate(&inventory, &machine.roots_at(""), &machine.settings()).expect_err("no UUID");
    assert!(error.to_string().contains("has no UUID"), "{error}");
}

fn hooks(spec: &Spec) -> Vec<String> {
    let of_devices = spec.devices.iter().flat_map(|device| &device.container_edits.hooks);
    let all = spec.container_edits.hooks.iter().chain(of_devices);
    let mut names: Vec<String> = Vec::new();
    for hook in all {
        if !names.contains(&hook.args[1]) {
            names.push(hook.args[1].clone());
        }
    }
    names
}

#[test]
fn hooks_are_in_order_and_can_be_left_out() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    let all = [
        "create-symlinks",
        "enable-cuda-compat",
        "update-ldcache",
        "disable-device-node-modification",
        "update-application-profile",
    ];
    let without = |disabled: &[&str], enabled: &[&str]| {
        let settings = Settings {
            disabled_hooks: settings::hook_names(disabled).expect("names"),
            enabled_hooks: settings::hook_names(enabled).expect("names"),
            ..machine.settings()
        };
        hooks(&generate(&inventory, &machine.roots_at(""), &settings).expect("a spec"))
    };
    assert_eq!(without(&[], &[]), all);
    assert_eq!(without(&["enable-cuda-compat"], &[]), [all[0], all[2], all[3], all[4]]);
    assert_eq!(without(&["enable-cuda-compat,update-ldcache"], &[]), [all[0], all[3], all[4]]);
    assert_eq!(without(&["all"], &[]), [""; 0]);
    assert_eq!(without(&["all"], &["update-ldcache"]), ["update-ldcache"]);
    assert!(settings::hook_names(&["nothing"]).is_err());
}

#[test]
fn a_program_that_does_more_than_hooks_is_told_so() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    for (program, wanted) in [
        ("/usr/bin/nvidia-ctk", "nvidia-ctk hook create-symlinks"),
        ("/usr/local/bin/capstan", "capstan agent hook create-symlinks"),
        ("/opt/x-hook", "x-hook create-symlinks"),
    ] {
        let settings = Settings { hook: program.into(), ..machine.settings() };
        let spec = generate(&inventory, &machine.roots_at(""), &settings).expect("a spec");
        let hook = &spec.container_edits.hooks[0];
        assert!(hook.args.join(" ").starts_with(wanted), "{:?}", hook.args);
    }
    let settings = Settings { hook_here: Some(machine.path().join("nothing")), ..machine.settings() };
    let error = generate(&inventory, &machine.roots_at(""), &settings).expect_err("no hook").to_string();
    assert!(error.contains("the spec's hooks need it"), "{error}");
}

#[test]
fn other_kinds_have_their_nodes() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    let files = [
        "dev/nvidia-fs0",
        "dev/nvidia-fs1",
        "dev/gdrdrv",
        "dev/nvidia-nvswitchctl",
        "dev/nvidia-nvswitch0",
        "dev/infiniband/uverbs0",
        "dev/infiniband/rdma_cm",
        "dev/infiniband/umad0",
        "dev/nvidia-caps-imex-channels/channel0",
        "dev/nvidia-caps-imex-channels/channel7",
        "etc/cufile.json",
        "dev/nvidia-caps/nvidia-cap1",
    ];
    files.iter().for_each(|file| machine.file(file));
    let cases = [
        (Mode::Gds, "nvidia.com/gds all: /dev/nvidia-fs0 /dev/nvidia-fs1"),
        (Mode::Gdrcopy, "nvidia.com/gdrcopy all: /dev/gdrdrv"),
        (Mode::Mofed, "nvidia.com/mofed all: /dev/infiniband/rdma_cm /dev/infiniband/uverbs0"),
        (Mode::Nvswitch, "nvidia.com/nvswitch all: /dev/nvidia-nvswitch0 /dev/nvidia-nvswitchctl"),
        (
            Mode::Management,
            "management.nvidia.com/gpu all: /dev/nvidia-modeset /dev/nvidia-uvm /dev/nvidia-uvm-tools /dev/nvidia0 \
             /dev/nvidiactl /dev/nvidia-caps/nvidia-cap1 /dev/nvidia-caps-imex-channels/channel0 \
             /dev/nvidia-caps-imex-channels/channel7",
        ),
    ];
    for (mode, wanted) in cases {
        let settings = Settings { mode, ..machine.settings() };
        let spec = generate(&inventory, &machine.roots_at(""), &settings).expect("a spec");
        let nodes = |device: &capstan_cdi::Device| {
            let paths: Vec<&str> = device.container_edits.device_nodes.iter().map(|node| node.path.as_str()).collect();
            format!("{}: {}", device.name, paths.join(" "))
        };
        let devices: Vec<String> = spec.devices.iter().map(nodes).collect();
        let shown = format!("{} {}", spec.kind, devices.join(", "));
        let mut words: Vec<&str> = shown.split(' ').collect();
        let mut wanted_words: Vec<&str> = wanted.split(' ').collect();
        words.sort_unstable();
        wanted_words.sort_unstable();
        assert_eq!(words, wanted_words, "{mode:?}");
        assert!(!hooks(&spec).contains(&"disable-device-node-modification".to_owned()), "{mode:?}");
    }
    let empty = tempfile::tempdir().expect("a directory");
    let roots = Roots::new("/", empty.path(), Some("/".into()));
    let roots = Roots { dev_here: empty.path().to_owned(), ..roots };
    for mode in [Mode::Gds, Mode::Gdrcopy, Mode::Mofed, Mode::Nvswitch, Mode::Management, Mode::Imex] {
        let settings = Settings { mode, ..machine.settings() };
        assert!(generate(&inventory, &roots, &settings).is_err(), "{mode:?} without nodes");
    }
}

#[test]
fn management_opens_capabilities_when_asked() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    machine.file("dev/nvidia-caps/nvidia-cap1");
    let enabled_hooks = settings::hook_names(&["chmod"]).expect("names");
    let settings = Settings { mode: Mode::Management, enabled_hooks, ..machine.settings() };
    let spec = generate(&inventory, &machine.roots_at(""), &settings).expect("a spec");
    assert_eq!(hooks(&spec), ["create-symlinks", "enable-cuda-compat", "update-ldcache", "chmod"]);
}

#[test]
fn channels_are_numbers_that_exist() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    machine.file("dev/nvidia-caps-imex-channels/channel0");
    machine.file("dev/nvidia-caps-imex-channels/channel7");
    let of = |id: &str| {
        let settings = Settings { mode: Mode::Imex, devices: vec![id.into()], all_device: false, ..machine.settings() };
        generate(&inventory, &machine.roots_at(""), &settings).map(|spec| names(&spec))
    };
    assert_eq!(of("all").expect("channels"), ["0", "7"]);
    assert_eq!(of("7").expect("a channel"), ["7"]);
    assert_eq!(of("channel0").expect("a channel"), ["0"]);
    for wrong in ["x", "channelx", "-1", "1048576", "3"] {
        assert!(of(wrong).is_err(), "{wrong}");
    }
    assert_eq!(modes::channel("1048575").ok(), Some(1_048_575));
}

#[test]
fn the_device_plugin_gets_what_the_node_has() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    machine.file("dev/nvidia-caps-imex-channels/channel0");
    machine.file("dev/gdrdrv");
    let dir = tempfile::tempdir().expect("a directory");
    let settings = Settings { names: vec![NameStrategy::Uuid], ..machine.settings() };
    let write = |extras: &Extras| {
        let found =
            write_for_plugin(&inventory, &machine.roots_at(""), &settings, extras, dir.path()).expect("written");
        let entries = std::fs::read_dir(dir.path()).expect("listed").flatten();
        let mut files: Vec<String> = entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
        files.sort();
        (found, files)
    };
    let extras = Extras { channels: vec![0], gdrcopy: true, gds: true, mofed: false };
    let name = |class: &str| format!("k8s.device-plugin.nvidia.com-{class}.json");
    let (found, files) = write(&extras);
    assert_eq!(found, ["gdrcopy"], "there is no storage to read from");
    assert_eq!(files, [name("gdrcopy"), name("gpu"), name("imex-channel")]);
    assert_eq!(write(&Extras::default()), (vec![], vec![name("gpu")]), "what is not wanted goes");
}

#[test]
fn tegra_lists_are_followed() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    machine.file("dev/nvmap");
    machine.file("usr/lib/tegra/libx.so");
    symlink("libx.so", machine.path().join("usr/lib/tegra/liblink.so")).expect("a link");
    machine.file("etc/nv_tegra_release");
    let list = machine.path().join("list.csv");
    let text =
        "dev, /dev/nvmap\nlib, /usr/lib/tegra/libx.so\nsym, /usr/lib/tegra/liblink.so\nwhat, /x\nlib\nlib, /gone\n";
    std::fs::write(&list, text).expect("a list");
    let compat_root = Some("/usr/local/cuda/compat_orin".to_owned());
    let settings = Settings { mode: Mode::Csv, csv_files: vec![list], compat_root, ..machine.settings() };
    let spec = generate(&inventory, &machine.roots_at(""), &settings).expect("a spec");
    insta::assert_snapshot!(shown(&spec));
    let other = Settings { devices: vec!["1".into()], ..settings };
    assert!(generate(&inventory, &machine.roots_at(""), &other).is_err());
}

#[test]
fn windows_gives_its_gpu_and_driver() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    for file in [
        "dev/dxg",
        "usr/lib/wsl/drivers/nv_1/libcuda.so.1.1",
        "usr/lib/wsl/drivers/nv_1/nvidia-smi",
        "usr/lib/wsl/drivers/intel/x.so",
        "usr/lib/wsl/lib/libdxcore.so",
    ] {
        machine.file(file);
    }
    let spec = generate(&inventory, &machine.roots_at(""), &machine.settings()).expect("a spec");
    insta::assert_snapshot!(shown(&spec));
    assert_eq!(wsl::smi_link(&[]), []);
}

#[test]
fn gpus_that_share_memory_are_marked_on_demand() {
    let mut inventory = node(Model::Gb200, 2).inventory;
    inventory.gpus[0].addressing = Some(capstan_hw::gpu::nvidia::Addressing::Ats);
    let machine = Machine::new(&inventory, "usr/");
    let flags = FeatureFlags::parse(&["enable-coherent-annotations"]).expect("a flag");
    let settings = Settings { flags, names: vec![NameStrategy::Index], ..machine.settings() };
    let spec = generate(&inventory, &machine.roots_at(""), &settings).expect("a spec");
    let parts = capstan_cdi::split_coherent(&spec);
    let shown: Vec<(String, Vec<String>)> = parts.iter().map(|part| (part.kind.clone(), names(part))).collect();
    let wanted = [("nvidia.com/gpu.coherent", "0"), ("nvidia.com/gpu.noncoherent", "1")];
    assert_eq!(shown, wanted.map(|(kind, name)| (kind.to_owned(), vec![name.to_owned()])));
    assert!(FeatureFlags::parse(&["disable-nvsandbox-utils"]).is_ok());
    assert!(FeatureFlags::parse(&["nothing"]).is_err());
}

proptest! {
    #[test]
    fn any_list_of_a_tegra_system_is_answered(text in "[ -~\n]{0,120}") {
        prop_assert!(csv::parse(&text).iter().all(|(_, path)| path.starts_with('/')));
    }

    #[test]
    fn any_list_of_minors_is_answered(text in "[ -~\n]{0,80}", key in "[a-z0-9/]{0,12}") {
        let _ = devices::minor(&text, &key);
        let _ = csv::parse(&text);
    }

    #[test]
    fn a_minor_is_found_among_others(gpu in 0u32..8, gi in 0u32..15, minor: u32) {
        let text = format!("config 1\nbroken\ngpu{gpu}/gi{gi}/access {minor}\ngpu9/gi9/access x\n");
        prop_assert_eq!(devices::minor(&text, &format!("gpu{gpu}/gi{gi}/access")), Some(minor));
    }
}

#[derive(clap::Parser)]
struct Line {
    #[command(subcommand)]
    command: Command,
}

fn cli(machine: &Machine, words: &[&str]) -> crate::Result<String> {
    let line = Line::try_parse_from([&["cdi"], words].concat()).expect("a command line");
    let mut out = Vec::new();
    let hardware = || Source::of(Arc::new(Fake::new(Recording::h200())));
    run(&line.command, &|_| hardware(), machine.path(), &mut out)?;
    Ok(String::from_utf8(out).expect("text"))
}

#[test]
fn the_command_line_writes_lists_and_moves_specs() {
    let inventory = Recording::h200().inventory;
    let machine = Machine::new(&inventory, "usr/");
    let root = machine.path().display().to_string();
    let dir = tempfile::tempdir().expect("a directory");
    let file = dir.path().join("nvidia.json").display().to_string();
    cli(&machine, &["generate", "--driver-root", &root, "--output", &file]).expect("written");
    let text = std::fs::read_to_string(&file).expect("a file");
    assert!(text.starts_with('{'), "the name asks for JSON");
    let spec_dir = dir.path().display().to_string();
    let listed = cli(&machine, &["list", "--spec-dir", &spec_dir]).expect("listed");
    let uuid = &inventory.gpus[0].uuid;
    assert_eq!(listed, format!("nvidia.com/gpu=0\nnvidia.com/gpu={uuid}\nnvidia.com/gpu=all\n"));
    let moved = cli(&machine, &["transform", "root", "--from", &root, "--to", "/run/nvidia/driver", "--input", &file]);
    assert!(moved.expect("moved").contains("hostPath: /run/nvidia/driver/usr/lib64/libcuda.so.580.159.04"));
}

#[test]
fn what_is_wrong_on_the_command_line_is_said_before_anything_is_done() {
    let machine = Machine::new(&Recording::h200().inventory, "usr/");
    let cases: [(&[&str], &str); 6] = [
        (&["--vendor", "1x"], "is no vendor"),
        (&["--class", "a b"], "is no class"),
        (&["--format", "xml"], "is no format"),
        (&["--enable-hook", "all"], "can only be disabled"),
        (&["--disable-hook", "x"], "no hook is called"),
        (&["--feature-flag", "x"], "no feature flag"),
    ];
    for (words, wanted) in cases {
        let error = cli(&machine, &[&["generate"], words].concat()).expect_err(wanted).to_string();
        assert!(error.contains(wanted), "{error}");
    }
    assert!(Line::try_parse_from(["cdi", "generate", "--mode", "x"]).is_err());
}

/// Waits until a file exists or is gone, with inotify.
async fn until(path: &Path, there: impl Fn(Option<&str>) -> bool) {
    loop {
        let mut changes = crate::files::Changes::of(&[path.parent().expect("a parent")]);
        if there(std::fs::read_to_string(path).ok().as_deref()) {
            return;
        }
        changes.next(std::time::Duration::from_secs(30)).await;
    }
}

#[tokio::test]
async fn a_kept_spec_follows_the_driver_and_its_mig_layout() {
    let fake = Arc::new(Fake::new(Recording::h200()));
    let machine = Machine::new(&Recording::h200().inventory, "usr/");
    let dir = tempfile::tempdir().expect("a directory");
    let output = dir.path().join("nvidia.yaml");
    let stop = CancellationToken::new();
    let hardware = Arc::new(Source::of(fake.clone()));
    let cx = Cx::new(hardware, machine.roots_at(""), machine.path(), stop.clone());
    #[derive(clap::Parser)]
    struct Cli {
        #[command(flatten)]
        options: MaintainOptions,
    }
    let words = ["keep", "--output", output.to_str().expect("text")];
    let task = tokio::spawn(maintain(Cli::try_parse_from(words).expect("options").options, cx));
    until(&output, |text| text.is_some_and(|text| text.contains("libcuda.so.580.159.04"))).await;

    let mig = Recording::h200_mig().inventory;
    fake.edit(|recording| recording.inventory = mig.clone());
    machine.file("dev/nvidia-caps/nvidia-cap9");
    machine.file("dev/nvidia-new");
    until(&output, |text| text.is_some_and(|text| text.contains(&mig.gpus[0].mig_devices[0].uuid))).await;

    std::fs::remove_file(machine.path().join("usr/lib64/libcuda.so.580.159.04")).expect("removed");
    until(&output, |text| text.is_none()).await;

    fake.edit(|recording| recording.inventory.driver = "590.1.2".into());
    machine.install("590.1.2", "usr/");
    machine.file("dev/nvidia-back");
    until(&output, |text| text.is_some_and(|text| text.contains("libcuda.so.590.1.2"))).await;
    stop.cancel();
    task.await.expect("no panic").expect("a clean end");
    assert!(output.exists(), "containers may start while no agent runs");
}
