//! What goes wrong on a host: roles recover, or say why they cannot.

use std::time::{Duration, SystemTime};

use capstan_kubelet::fake::Plugin;
use capstan_node::{CDI_SPECS, DEVICE_PLUGIN, FEATURE_DISCOVERY, VALIDATOR};

use crate::guest::here;
use crate::here::{Here, Running, gpus, install_libraries, sh, until_async};
use crate::roles::{GPU, kubelet};

fn eight(plugin: &Plugin) -> bool {
    plugin.healthy().len() == 8
}

#[test]
fn a_kubelet_that_starts_again_gets_the_gpus_again() {
    let here = here!(Host);
    here.run(async {
        let first = kubelet();
        let plugin = Running::start(DEVICE_PLUGIN.name, &[], gpus(8));
        first.until(GPU, eight).await;
        first.stop().await;
        let second = kubelet();
        second.until(GPU, eight).await;
        plugin.stop().await;
        second.stop().await;
    });
}

#[test]
fn a_socket_folder_that_vanishes_is_followed_to_the_next_one() {
    let here = here!(Host);
    here.run(async {
        let first = kubelet();
        let plugin = Running::start(DEVICE_PLUGIN.name, &[], gpus(8));
        first.until(GPU, eight).await;
        first.stop().await;
        // As when the kubelet's state is wiped and it starts anew.
        sh("rm -r /var/lib/kubelet");
        let second = kubelet();
        let mut plugins = second.watch();
        // Half a minute at most: that often the plugin looks by itself.
        let again = plugins.wait_for(|plugins| plugins.get(GPU).is_some_and(eight));
        tokio::time::timeout(Duration::from_secs(60), again).await.expect("in time").expect("the kubelet runs");
        assert!(plugin.is_running());
        plugin.stop().await;
        second.stop().await;
    });
}

#[test]
fn a_clock_that_jumps_does_not_stop_roles() {
    let here = here!(Host);
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
    let (before, day) = (now(), 24 * 3600);
    here.run(async {
        let output = "/run/features.d/gfd";
        let flag = format!("--output-file={output}");
        let args = ["--sleep-interval=1s", "--use-node-feature-api=false", &flag];
        let discovery = Running::start(FEATURE_DISCOVERY.name, &args, gpus(8));
        let first = kubelet();
        let plugin = Running::start(DEVICE_PLUGIN.name, &[], gpus(8));
        first.until(GPU, eight).await;
        for seconds in [before + 365 * day, before - 365 * day] {
            sh(&format!("date -s @{seconds}"));
            // Whoever counts with the clock would now wait for a year, or write no more.
            let stamp = || {
                let text = std::fs::read_to_string(output).unwrap_or_default();
                let line = text.lines().find_map(|line| line.strip_prefix("nvidia.com/gfd.timestamp="));
                line.and_then(|stamp| stamp.parse::<u64>().ok()).is_some_and(|stamp| stamp.abs_diff(seconds) < day)
            };
            until_async("labels are written with the new time", stamp).await;
        }
        first.stop().await;
        let second = kubelet();
        second.until(GPU, eight).await;
        plugin.stop().await;
        discovery.stop().await;
        second.stop().await;
    });
    sh(&format!("date -s @{before}"));
}

/// Keeps specs in a file system of a few pages; `trouble` fills it, `relief` makes room.
fn specs_in_a_small_place(here: &Here, trouble: &str, says: &str, relief: &str) {
    let recording = gpus(8);
    install_libraries("/".as_ref(), &recording);
    sh("insmod /usr/lib/capstan/modules/nvidia.ko; mkdir -p /run/small; mount -t tmpfs -o size=128k tmpfs /run/small");
    here.run(async {
        let args = ["--output=/run/small/cdi/nvidia.yaml", "--resync-seconds=1", "--disable-hook=all"];
        let whole = || std::fs::read_to_string("/run/small/cdi/nvidia.yaml").unwrap_or_default();
        sh("rm -f /dev/nvidia7");
        let specs = Running::start(CDI_SPECS.name, &args, recording.clone());
        until_async("a spec of what is there", || whole().contains("/dev/nvidia6")).await;
        let before = whole();
        sh(trouble);
        // One more device node: the spec has to change, and cannot.
        sh("mknod /dev/nvidia7 c 195 7");
        here.until_said(says).await;
        assert_eq!(whole(), before, "the old spec is whole");
        assert_eq!(sh("ls -A /run/small/cdi"), "nvidia.yaml", "nothing half-written beside it");
        sh(relief);
        until_async("the new spec", || whole().contains("/dev/nvidia7")).await;
        specs.stop().await;
    });
    sh("umount /run/small; rmmod nvidia; rm -f /dev/nvidia7");
    sh("rm /usr/lib/x86_64-linux-gnu/libcuda.so.* /usr/lib/x86_64-linux-gnu/libnvidia-*");
}

#[test]
fn a_full_disk_keeps_the_old_spec_whole_and_is_named() {
    let here = here!(Host);
    let fill = "dd if=/dev/zero of=/run/small/full bs=4k 2>/dev/null; test -s /run/small/full";
    specs_in_a_small_place(&here, fill, "No space left on device", "rm /run/small/full");
}

#[test]
fn a_file_system_that_turns_read_only_is_named_and_waited_for() {
    let here = here!(Host);
    let (closed, opened) = ("mount -o remount,ro /run/small", "mount -o remount,rw /run/small");
    specs_in_a_small_place(&here, closed, "Read-only file system", opened);
}

#[test]
fn a_read_only_run_fails_a_check_with_the_reason() {
    let here = here!(Host);
    sh("mkdir -p /host-dev-char /run/nvidia/validations");
    sh("cd /usr/lib/capstan/modules && insmod nvidia.ko && insmod nvidia-uvm.ko && mount -o remount,ro /run");
    here.run(async {
        let check = ["--component=driver", "--host-root-ctr-path=/", "--with-wait=false"];
        let refused = Running::start(VALIDATOR.name, &check, gpus(8)).ended().await;
        sh("mount -o remount,rw /run");
        let refused = refused.expect_err("nothing can be written").to_string();
        assert!(refused.contains("Read-only file system") && refused.contains("/run/nvidia"), "{refused}");
        Running::start(VALIDATOR.name, &check, gpus(8)).ended().await.expect("it can be written again");
    });
    sh("rmmod nvidia_uvm && rmmod nvidia && rm -r /host-dev-char /run/nvidia");
}
