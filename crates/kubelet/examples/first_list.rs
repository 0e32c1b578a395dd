//! Measures how soon a device plugin sends its first device list: `first_list 10 capstan agent device-plugin`.
//!
//! Acts as the kubelet, starts the plugin this many times, and prints the time from each start to the first list.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Instant;

use capstan_kubelet::fake::Kubelet;

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [runs, program, arguments @ ..] = &words[..] else { return Err("first_list RUNS PROGRAM ARGUMENTS…".into()) };
    let dir: PathBuf = std::env::temp_dir().join(format!("first-list-{}", std::process::id()));
    std::fs::create_dir_all(&dir)?;
    for _ in 0..runs.parse::<u32>()? {
        let kubelet = Kubelet::start(&dir)?;
        let start = Instant::now();
        let mut plugin = Command::new(program)
            .args(arguments)
            .env("KUBELET_SOCKET", kubelet.socket())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()?;
        let listed = kubelet.until("nvidia.com/gpu", |plugin| !plugin.devices.is_empty()).await;
        println!("{:.1} ms, {} devices", start.elapsed().as_secs_f64() * 1000.0, listed.devices.len());
        plugin.kill()?;
        plugin.wait()?;
        kubelet.stop().await;
    }
    Ok(std::fs::remove_dir_all(dir)?)
}
