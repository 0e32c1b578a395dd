//! Memory that the operator needed for a while is given back.
//!
//! Its start and a burst of changes take several times what it needs afterwards, of memory and of its own code. The
//! allocator of the C library keeps freed memory, and one heap per thread, unless it is told otherwise; code that ran
//! once stays with the process until the machine runs out of memory.

use std::time::Duration;

use tokio_util::sync::CancellationToken;

/// How often what is not needed is given back. It takes about a millisecond.
const EVERY: Duration = Duration::from_secs(30);

/// Gives back what is free now and then, until `stop`.
pub(crate) async fn keep_small(stop: CancellationToken) {
    let work = async {
        loop {
            tokio::time::sleep(EVERY).await;
            let _ = tokio::task::spawn_blocking(system::give_back).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

/// Keeps one heap for all threads, and gives larger pieces back at once. Call it before there are threads.
pub(crate) fn be_frugal() {
    system::be_frugal();
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[allow(unsafe_code, reason = "the C library's allocator and the kernel offer no other way")]
mod system {
    /// Freed memory at the end of the heap beyond this is given back; larger pieces never become part of it.
    const LARGE: i32 = 128 * 1024;

    pub(super) fn be_frugal() {
        // SAFETY: mallopt may be called at any time; these parameters only say when memory is taken and given back.
        // Setting the thresholds also keeps them from growing by themselves.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
            libc::mallopt(libc::M_TRIM_THRESHOLD, LARGE);
        }
    }

    pub(super) fn give_back() {
        // SAFETY: malloc_trim only gives free pages back to the system.
        unsafe {
            libc::malloc_trim(0);
        }
        for (begin, end) in code() {
            // SAFETY: the range is a mapping of our own program that was never written: its code, or what is before it.
            // Its pages are those of the file, and come back from there when they are needed.
            unsafe {
                libc::madvise(begin as *mut libc::c_void, end - begin, libc::MADV_DONTNEED);
            }
        }
    }

    /// Where the code of this program is.
    fn code() -> Vec<(usize, usize)> {
        let program = std::env::current_exe().map(|path| path.display().to_string()).unwrap_or_default();
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        maps.lines().filter_map(|line| super::code_in(line, &program)).collect()
    }
}

/// The addresses in a line of `/proc/self/maps`, if it is a part of `program` that nobody can have changed.
#[cfg_attr(not(all(target_os = "linux", target_env = "gnu")), allow(dead_code, reason = "only used there"))]
fn code_in(line: &str, program: &str) -> Option<(usize, usize)> {
    let mut parts = line.split_whitespace();
    let (begin, end) = parts.next()?.split_once('-')?;
    let is_code = match (parts.next(), parts.next()) {
        (Some("r-xp"), _) => true,
        // Names, tables and constants. What is behind the code looks the same, but was written when it was loaded.
        (Some("r--p"), Some(offset)) => offset.bytes().all(|digit| digit == b'0'),
        _ => false,
    };
    let is_code = is_code && parts.nth(2) == Some(program);
    let number = |text: &str| usize::from_str_radix(text, 16).ok();
    if is_code { Some((number(begin)?, number(end)?)) } else { None }
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
mod system {
    pub(super) fn be_frugal() {}

    pub(super) fn give_back() {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_of_the_program_is_given_back() {
        let line = |rights: &str, file: &str| format!("7f10-7f20 {rights} 00001000 fe:00 42                 {file}");
        assert_eq!(code_in(&line("r-xp", "/bin/capstan"), "/bin/capstan"), Some((0x7f10, 0x7f20)));
        let first = "7f10-7f20 r--p 00000000 fe:00 42                 /bin/capstan";
        assert_eq!(code_in(first, "/bin/capstan"), Some((0x7f10, 0x7f20)));
        for (rights, file) in
            [("r--p", "/bin/capstan"), ("rwxp", "/bin/capstan"), ("r-xp", "/lib/libc.so.6"), ("r-xp", "")]
        {
            assert_eq!(code_in(&line(rights, file), "/bin/capstan"), None);
        }
    }
}
