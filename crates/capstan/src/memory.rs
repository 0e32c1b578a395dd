//! Returns unused memory of the operator to the system.
//!
//! Startup and bursts of changes need several times the steady-state memory, for data and for code. By default the
//! allocator keeps freed memory, with one arena per thread, and code pages stay resident until the machine runs out of
//! memory.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// Interval between two checks of the process size.
const CHECK_INTERVAL: Duration = Duration::from_secs(10);

/// A process that grew by more than this many kB since the last check is busy: code pages released now would fault in
/// again at once. Releasing every second cost 25 % more CPU in a burst of 500 services.
const BUSY_GROWTH_KB: u64 = 1024;

/// Releases unused memory while the process is mostly idle, until `stop`. That takes about a millisecond.
pub(crate) async fn release_memory_periodically(stop: CancellationToken) {
    let work = async {
        let mut before = resident();
        loop {
            tokio::time::sleep(CHECK_INTERVAL).await;
            if resident() <= before + BUSY_GROWTH_KB {
                let _ = tokio::task::spawn_blocking(release_memory).await;
            }
            before = resident();
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Resident set size in kB.
fn resident() -> u64 {
    resident_in(&std::fs::read_to_string("/proc/self/status").unwrap_or_default())
}

/// The same, from the text of `/proc/self/status`; 0 where there is no such file.
fn resident_in(status: &str) -> u64 {
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    line.and_then(|line| line.trim().strip_suffix(" kB")?.parse().ok()).unwrap_or_default()
}

/// Configures the allocator: one arena for all threads, and large blocks unmapped when freed. Call it before threads
/// start.
pub(crate) fn configure_allocator() {
    allocator::configure_allocator();
}

/// Releases free heap memory and code pages, which fault in again when needed.
fn release_memory() {
    allocator::release_memory();
    code::release_memory();
}

/// The shipped allocator: a seventh less CPU than glibc's, for the same memory.
#[cfg(feature = "jemalloc")]
#[allow(unsafe_code, reason = "the allocator offers no other way")]
mod allocator {
    #[global_allocator]
    static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

    /// Configuration that jemalloc reads under this name: one arena for all threads, which rarely allocate
    /// concurrently, and a background thread that returns memory unused for half a second.
    // SAFETY: the symbol name and its type, a pointer to a NUL-terminated string, are those that jemalloc declares.
    #[unsafe(export_name = "_rjem_malloc_conf")]
    static CONFIGURATION: &std::ffi::c_char = {
        let text = c"narenas:1,background_thread:true,dirty_decay_ms:500,muzzy_decay_ms:0";
        // SAFETY: the pointer is to the first byte of a static string.
        unsafe { &*text.as_ptr() }
    };

    pub(super) fn configure_allocator() {}

    pub(super) fn release_memory() {}
}

#[cfg(all(target_os = "linux", target_env = "gnu", not(feature = "jemalloc")))]
#[allow(unsafe_code, reason = "the allocator of the C library offers no other way")]
mod allocator {
    /// Free memory at the top of the heap beyond this is trimmed; larger blocks are mapped separately.
    const LARGE: i32 = 128 * 1024;

    pub(super) fn configure_allocator() {
        // SAFETY: mallopt may be called at any time; these parameters only control when memory is taken and returned.
        // Setting the thresholds also disables their dynamic adjustment.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
        }
    }

    pub(super) fn release_memory() {
        // SAFETY: malloc_trim only returns free pages to the system.
        unsafe {
            libc::malloc_trim(0);
        }
    }
}

#[cfg(not(any(feature = "jemalloc", all(target_os = "linux", target_env = "gnu"))))]
mod allocator {
    pub(super) fn configure_allocator() {}

    pub(super) fn release_memory() {}
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code, reason = "the kernel offers no other way")]
mod code {
    pub(super) fn release_memory() {
        for (begin, end) in untouched() {
            // SAFETY: the range is a private mapping of a file that was never written: every page equals the file, and
            // faults in from there when needed.
            unsafe {
                libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_DONTNEED);
            }
        }
    }

    /// Mappings of programs and libraries with code and constants.
    fn untouched() -> Vec<(usize, usize)> {
        super::untouched_in(&std::fs::read_to_string("/proc/self/smaps").unwrap_or_default())
    }
}

#[cfg(not(target_os = "linux"))]
mod code {
    pub(super) fn release_memory() {}
}

/// Address ranges in `/proc/self/smaps` that are unmodified file mappings.
///
/// Pages that the loader relocated before it made them read-only look the same, but the kernel counts them as
/// anonymous.
#[cfg_attr(not(target_os = "linux"), allow(dead_code, reason = "only used there"))]
fn untouched_in(smaps: &str) -> Vec<(usize, usize)> {
    let mut found = Vec::new();
    let mut candidate = None;
    for line in smaps.lines() {
        let mut words = line.split_whitespace();
        match (words.next(), words.next()) {
            (Some("Anonymous:"), Some("0")) => found.extend(candidate.take()),
            (Some(first), Some(rights)) if !first.ends_with(':') => {
                let path = words.nth(3).unwrap_or_default();
                let is_read_only = matches!(rights, "r-xp" | "r--p") && path.starts_with('/');
                candidate = if is_read_only { addresses(first) } else { None };
            }
            _ => {}
        }
    }
    found
}

fn addresses(range: &str) -> Option<(usize, usize)> {
    let (begin, end) = range.split_once('-')?;
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    Some((number(begin)?, number(end)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SMAPS: &str = "\
55d0-55e0 r--p 00000000 fe:00 1 /usr/bin/capstan
Size:                 64 kB
Anonymous:             0 kB
55e0-55f0 r-xp 00010000 fe:00 1 /usr/bin/capstan
Anonymous:             0 kB
55f0-5600 r--p 00020000 fe:00 1 /usr/bin/capstan
Anonymous:            16 kB
5600-5610 rw-p 00030000 fe:00 1 /usr/bin/capstan
Anonymous:             0 kB
7f00-7f10 r-xp 00001000 fe:00 2 /usr/lib/libcuda.so.1
Anonymous:             0 kB
7f10-7f20 r--p 00000000 00:00 0
Anonymous:             0 kB
7ff0-7ff1 r-xp 00000000 00:00 0 [vdso]
Anonymous:             0 kB
";

    #[test]
    fn only_what_is_still_as_in_its_file_is_given_back() {
        assert_eq!(untouched_in(SMAPS), [(0x55d0, 0x55e0), (0x55e0, 0x55f0), (0x7f00, 0x7f10)]);
    }

    #[test]
    fn the_size_of_the_process_is_read_in_kilobytes() {
        assert_eq!(resident_in("Name:\tcapstan\nVmHWM:\t   43008 kB\nVmRSS:\t   29696 kB\n"), 29_696);
        assert_eq!(resident_in(""), 0);
    }

    #[test]
    fn a_process_goes_on_after_giving_back() {
        release_memory();
        assert_eq!(untouched_in("nonsense"), []);
    }
}
