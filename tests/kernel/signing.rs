//! Secure Boot: which modules the kernel takes, and what it says of the others.

use crate::guest::here;
use crate::here::{sh, try_sh};

#[test]
fn secure_boot_takes_modules_of_a_trusted_key_alone() {
    let _here = here!(Secure);
    assert_eq!(sh("mokutil --sb-state"), "SecureBoot enabled");
    assert!(sh("cat /sys/kernel/security/lockdown").contains("[integrity]"));
    for (folder, says) in [("unsigned", "unsigned module"), ("foreign", "unavailable key")] {
        let refused = try_sh(&format!("insmod /usr/lib/capstan/modules/{folder}/nvidia.ko"));
        let error = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(error.contains("Key was rejected by service"), "{folder}: {error}");
        // Only the kernel's log tells them apart.
        assert!(sh("dmesg").contains(says), "{folder}: {}", sh("dmesg | tail -5"));
    }
    sh("insmod /usr/lib/capstan/modules/nvidia.ko");
    assert_eq!(sh("cat /sys/module/nvidia/taint"), "O", "out of the tree, and signed");
    sh("rmmod nvidia");
}
