//! What is left after a reboot, and after the plug was pulled in the middle of a write.

use std::path::Path;
use std::time::{Duration, Instant};

use capstan_agent::files;

use crate::guest::here;
use crate::here::{sh, try_sh};

/// The disk of the guest, which outlives a boot.
const MOUNT: &str = "modprobe -a virtio_blk ext4 && mount /dev/vda /disk";

#[test]
fn a_reboot_takes_modules_and_run_and_leaves_the_disk() {
    let here = here!(Host);
    match here.stage() {
        "" => {
            sh(&format!("modprobe -a virtio_blk ext4 && mkfs.ext4 -q -F /dev/vda && {MOUNT}"));
            sh("insmod /usr/lib/capstan/modules/nvidia.ko");
            files::write(Path::new("/disk/state"), b"kept").expect("written");
            files::write(Path::new("/run/state"), b"forgotten").expect("written");
            here.reboot("after")
        }
        _ => {
            sh(MOUNT);
            assert_eq!(std::fs::read("/disk/state").expect("the file on the disk"), b"kept");
            assert!(!Path::new("/run/state").exists());
            assert!(!sh("cat /proc/modules").contains("nvidia"), "nobody loaded it again");
            sh("umount /disk");
        }
    }
}

#[test]
fn a_power_loss_in_the_middle_of_a_write_leaves_the_old_file_or_the_new_one() {
    let here = here!(Host);
    let file = Path::new("/disk/nvidia.yaml");
    // Far more than a page, so that a write that is cut short shows.
    let content = |number: u64| format!("{number:08}\n").repeat(30_000).into_bytes();
    match here.stage() {
        "" => {
            sh(&format!("modprobe -a virtio_blk ext4 && mkfs.ext4 -q -F /dev/vda && {MOUNT}"));
            files::write(file, &content(0)).expect("written");
            let acknowledged = here.kept("acknowledged");
            std::thread::spawn(move || {
                for number in 1.. {
                    files::write(file, &content(number)).expect("written");
                    std::fs::write(&acknowledged, number.to_string()).expect("told");
                }
            });
            // Some writes have ended then, and one is on its way.
            let begin = Instant::now();
            while begin.elapsed() < Duration::from_millis(700) {
                std::hint::spin_loop();
            }
            here.pull_plug("after")
        }
        _ => {
            sh(MOUNT);
            let found = std::fs::read(file).expect("the file is there");
            let number: u64 = String::from_utf8_lossy(&found[..8.min(found.len())]).parse().expect("a number");
            assert!(found == content(number), "{} bytes, not one content as a whole", found.len());
            let told = std::fs::read_to_string(here.kept("acknowledged")).unwrap_or_default().parse().unwrap_or(0);
            assert!(number >= told, "write {told} had returned, and number {number} is what is left");
            sh("umount /disk");
            assert!(try_sh("e2fsck -f -n /dev/vda").status.success(), "the file system is whole");
        }
    }
}
