//! containerd 2 with a CDI spec that we generated, and our hooks run by runc.

use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use capstan_node::CDI_SPECS;

use crate::guest::here;
use crate::here::{Running, gpus, install_libraries, sh, try_sh, until, until_async};

/// Where specs name the program of the hooks.
const HOOK: &str = "/usr/bin/nvidia-cdi-hook";

/// A program that becomes this test, which is our hook then.
const SCRIPT: &str = r#"#!/bin/sh
for word; do printf '%s\n' "$word"; done >/run/hook.$$
export CAPSTAN_GUEST=1 CAPSTAN_HOOK=/run/hook.$$
exec /usr/lib/capstan/story --exact containers::hooks_of_the_spec_run_in_the_container --nocapture >>/run/hooks.log 2>&1
"#;

fn start_containerd() {
    sh("modprobe overlay; mkdir -p /run/containers /etc/containerd && rm -f /etc/containerd/config.toml");
    let config = "version = 3\nroot = \"/run/containers/root\"\n";
    std::fs::write("/etc/containerd/config.toml", config).expect("a config");
    sh("setsid containerd >/run/containerd.log 2>&1 </dev/null &");
    until("containerd answers", || try_sh("ctr version").status.success());
    // The root of containers: a static program that is many.
    sh("mkdir -p /run/rootfs/bin /run/rootfs/etc && cp /usr/bin/busybox /run/rootfs/bin/busybox");
}

fn stop_containerd() {
    sh("pkill -x containerd; while pgrep -x containerd >/dev/null; do sleep 0.1; done; rm -rf /run/rootfs");
}

async fn spec(args: &[&str]) {
    let specs = Running::start(CDI_SPECS.name, args, gpus(8));
    until_async("a spec", || Path::new("/var/run/cdi/nvidia.yaml").exists()).await;
    specs.stop().await;
}

fn load_driver() {
    install_libraries("/".as_ref(), &gpus(8));
    sh("cd /usr/lib/capstan/modules && insmod nvidia.ko && insmod nvidia-uvm.ko");
}

fn unload_driver() {
    sh("rmmod nvidia_uvm && rmmod nvidia && rm -rf /var/run/cdi");
    sh("rm /usr/lib/x86_64-linux-gnu/libcuda.so.* /usr/lib/x86_64-linux-gnu/libnvidia-*");
}

/// Runs a command in a container with a device.
fn container(device: &str, command: &str) -> Result<String, String> {
    let line = format!("ctr run --rm --rootfs --device {device} /run/rootfs story /bin/busybox sh -c '{command}'");
    let output = try_sh(&line);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(text(&output.stderr)) }
}

#[test]
fn containerd_gives_a_container_what_the_spec_says() {
    let here = here!(Host);
    load_driver();
    here.run(spec(&["--disable-hook=all"]));
    start_containerd();
    let seen = container("nvidia.com/gpu=3", "busybox ls -l /dev; busybox env; busybox ls /usr/lib/x86_64-linux-gnu");
    let seen = seen.expect("a container with a GPU");
    for name in ["nvidia3", "nvidiactl", "nvidia-uvm", "libcuda.so.", "NVIDIA_VISIBLE_DEVICES=void"] {
        assert!(seen.contains(name), "no {name} in\n{seen}");
    }
    assert!(!seen.contains("nvidia4"), "a GPU of others:\n{seen}");
    let opened = container("nvidia.com/gpu=3", "exec 3</dev/nvidia3 && busybox echo opened").expect("the node opens");
    assert_eq!(opened.trim(), "opened", "the cgroup lets it");
    let unknown = container("nvidia.com/gpu=9", "true").expect_err("there is no ninth GPU");
    assert!(unknown.contains("nvidia.com/gpu=9"), "{unknown}");
    stop_containerd();
    unload_driver();
}

#[test]
fn hooks_of_the_spec_run_in_the_container() {
    if let Some(words) = std::env::var_os("CAPSTAN_HOOK") {
        return act_as_hook(Path::new(&words));
    }
    let here = here!(Host);
    load_driver();
    std::fs::write(HOOK, SCRIPT).expect("a program");
    std::fs::set_permissions(HOOK, std::fs::Permissions::from_mode(0o755)).expect("its mode");
    here.run(spec(&[]));
    start_containerd();
    let driver = gpus(1).inventory.driver;
    let seen = container("nvidia.com/gpu=0", "busybox ls -l /usr/lib/x86_64-linux-gnu /etc /run");
    let said = || std::fs::read_to_string("/run/hooks.log").unwrap_or_default();
    let seen = seen.unwrap_or_else(|error| panic!("{error}\nhooks: {}", said()));
    assert!(seen.contains(&format!("libcuda.so.{driver}")), "{seen}");
    assert!(
        seen.contains("libcuda.so -> "),
        "a hook makes the link that programs are linked with:\n{seen}\n{}",
        said()
    );
    assert!(seen.contains("ld.so.cache"), "a hook makes the loader's cache:\n{seen}\n{}", said());
    stop_containerd();
    unload_driver();
    sh(&format!("rm {HOOK} /run/hook.* /run/hooks.log"));
}

/// What runc runs: our hook with the words that the spec has.
fn act_as_hook(words: &Path) {
    let text = std::fs::read_to_string(words).expect("the words");
    let words: Vec<String> = text.lines().map(str::to_owned).collect();
    let ended = capstan_agent::hook::run(&words, &mut std::io::stdin());
    let _ = writeln!(std::io::stderr(), "{words:?}: {ended:?}");
    ended.expect("the hook works");
}
