//! Records the GPUs of this machine: `cargo run -p capstan-hw --example record > node.json`.

use std::time::{Duration, Instant};

use capstan_hw::fake::Recording;
use capstan_hw::gpu::nvidia::Hardware;
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::nvml::Library;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let started = Instant::now();
    let library = Library::open(&Roots::local())?;
    eprintln!("opened in {:?}", started.elapsed());
    for _ in 0..2 {
        let started = Instant::now();
        let inventory = library.inventory()?;
        eprintln!("inventory in {:?}", started.elapsed());
        for gpu in &inventory.gpus {
            let started = Instant::now();
            library.reading(&gpu.uuid)?;
            eprintln!("reading in {:?}", started.elapsed());
            let started = Instant::now();
            library.profiling(&gpu.uuid)?;
            eprintln!("activity in {:?}", started.elapsed());
        }
    }
    // Profiling metrics are differences between two samples.
    std::thread::sleep(Duration::from_millis(200));
    let recording = Recording::take(&library)?;
    println!("{}", serde_json::to_string_pretty(&recording)?);
    Ok(())
}
