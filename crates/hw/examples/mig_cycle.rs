//! Partitions a GPU into MIG devices and restores it, to test the calls on real hardware:
//! `cargo run -p capstan-hw --example mig_cycle [-- GPU-UUID | --fake]`, as root.
//!
//! Every step is a JSON line with its duration. The first step that fails ends the cycle; in any case all instances are
//! destroyed and the mode is restored. Exits with 1 when a step failed, with 2 when the GPU could not be restored.
//! A GPU that has instances already is left alone.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use capstan_hw::fake::{Fake, Recording};
use capstan_hw::gpu::nvidia::driver::Roots;
use capstan_hw::gpu::nvidia::mig::{InstanceProfile, MigControl, Switch};
use capstan_hw::gpu::nvidia::nvml::{Control, Library};
use capstan_hw::gpu::nvidia::{Hardware, MigMode};
use capstan_hw::{Error, Result};
use serde_json::{Value, json};

fn main() -> ExitCode {
    let argument = std::env::args().nth(1);
    let fake = argument.as_deref() == Some("--fake");
    let nodes = Nodes { fake: fake.then(|| Arc::new(Fake::new(Recording::h200()))) };
    let wanted = argument.filter(|_| !fake);
    let Some(cycle) = step("choose a GPU", || Cycle::new(&nodes, wanted)) else { return ExitCode::from(1) };
    let done = cycle.run();
    let back = cycle.restore();
    match (back, done) {
        (None, _) => ExitCode::from(2),
        (Some(()), None) => ExitCode::from(1),
        (Some(()), Some(())) => ExitCode::SUCCESS,
    }
}

/// The hardware of this machine, or a fake H200.
struct Nodes {
    fake: Option<Arc<Fake>>,
}

impl Nodes {
    fn control(&self) -> Arc<dyn MigControl> {
        match &self.fake {
            Some(fake) => fake.clone(),
            None => Arc::new(Control::new(Roots::local())),
        }
    }

    /// Reopened for each use: an open library keeps a GPU from being reset.
    fn hardware(&self) -> Result<Arc<dyn Hardware>> {
        Ok(match &self.fake {
            Some(fake) => fake.clone(),
            None => Arc::new(Library::open(&Roots::local())?),
        })
    }
}

struct Cycle<'a> {
    nodes: &'a Nodes,
    control: Arc<dyn MigControl>,
    gpu: String,
    before: MigMode,
}

impl<'a> Cycle<'a> {
    fn new(nodes: &'a Nodes, wanted: Option<String>) -> Result<(Self, Value)> {
        let inventory = nodes.hardware()?.inventory()?;
        let chosen = inventory.gpus.iter().find(|gpu| wanted.as_ref().is_none_or(|uuid| *uuid == gpu.uuid));
        let gpu = chosen.ok_or_else(|| Error::NotFound(wanted.unwrap_or_else(|| "of any kind".into())))?;
        let control = nodes.control();
        let there = control.instances(&gpu.uuid)?;
        if !there.is_empty() {
            return Err(Error::InUse(format!("GPU {} with {} instances", gpu.uuid, there.len())));
        }
        let result = json!({"gpu": gpu.uuid, "name": gpu.name, "driver": inventory.driver, "mig": gpu.mig});
        Ok((Self { nodes, control, gpu: gpu.uuid.clone(), before: gpu.mig }, result))
    }

    /// All steps, or `None` after the first one that fails.
    fn run(&self) -> Option<()> {
        let (control, gpu) = (&self.control, self.gpu.as_str());
        if !matches!(self.before, MigMode::Enabled { .. }) {
            step("switch MIG on", || self.switch(Switch::On))?;
        }
        let profiles = step("list profiles", || {
            let found = control.profiles(gpu)?;
            let result = found.iter().map(profile).collect();
            Ok((found, result))
        })?;
        for slices in [3, 1] {
            let chosen = profiles.iter().find(|profile| profile.slices.gpu == slices)?;
            let made = step(&format!("create GPU instance {}", chosen.name), || {
                let made = control.create_gpu_instance(gpu, chosen.id, None)?;
                Ok((made.clone(), json!(made)))
            })?;
            step(&format!("create compute instance of {slices} slices"), || {
                Ok(((), json!(control.create_compute_instance(gpu, made.id, slices)?)))
            })?;
        }
        step("list instances", || Ok(((), json!(control.instances(gpu)?))))?;
        step("read the inventory", || {
            let found = self.nodes.hardware()?.inventory()?.gpus.into_iter().find(|it| it.uuid == gpu);
            let devices = found.map(|gpu| gpu.mig_devices).unwrap_or_default();
            let result = json!(devices);
            if devices.len() == 2 { Ok(((), result)) } else { Err(Error::NotFound(format!("MIG devices: {result}"))) }
        })
    }

    /// Restores the GPU; `None` when that failed.
    fn restore(&self) -> Option<()> {
        let (control, gpu) = (&self.control, self.gpu.as_str());
        let there = step("list instances to destroy", || {
            let found = control.instances(gpu)?;
            let result = json!(found);
            Ok((found, result))
        })?;
        let mut whole = Some(());
        for instance in there {
            for part in &instance.compute {
                let name = format!("destroy compute instance {} of GPU instance {}", part.id, instance.id);
                let gone = || Ok(((), json!(control.destroy_compute_instance(gpu, instance.id, part.id)?)));
                whole = step(&name, gone).and(whole);
            }
            let gone = || Ok(((), json!(control.destroy_gpu_instance(gpu, instance.id)?)));
            whole = step(&format!("destroy GPU instance {}", instance.id), gone).and(whole);
        }
        let now = control.mode(gpu);
        if now.is_ok_and(|now| now != self.before) {
            let before = if matches!(self.before, MigMode::Enabled { .. }) { Switch::On } else { Switch::Off };
            whole = step("switch MIG back", || self.switch(before)).and(whole);
        }
        let same = step("compare the mode", || {
            let now = control.mode(gpu)?;
            let result = json!({"before": self.before, "now": now});
            if now == self.before {
                Ok(((), result))
            } else {
                Err(Error::NotFound(format!("mode as before: {result}")))
            }
        });
        same.and(whole)
    }

    /// Switches MIG, with the reset that the GPU may need for it.
    fn switch(&self, mig: Switch) -> Result<((), Value)> {
        let after = self.control.set_mode(&self.gpu, mig)?;
        let pending = matches!(after, MigMode::Disabled { pending: true } | MigMode::Enabled { pending_off: true });
        if pending {
            self.control.reset(&self.gpu)?;
        }
        let now = self.control.mode(&self.gpu)?;
        let switched = matches!(now, MigMode::Enabled { .. }) == (mig == Switch::On);
        let result = json!({"after": after, "reset": pending, "now": now});
        if switched { Ok(((), result)) } else { Err(Error::InUse(format!("GPU {} ({result})", self.gpu))) }
    }
}

fn profile(profile: &InstanceProfile) -> Value {
    json!({
        "id": profile.id,
        "name": profile.name.to_string(),
        "max_instances": profile.max_instances,
        "slices": profile.slices,
        "placements": profile.placements,
    })
}

/// One step: its name, its result or error, and milliseconds.
fn step<T>(name: &str, act: impl FnOnce() -> Result<(T, Value)>) -> Option<T> {
    let started = Instant::now();
    let answer = act();
    let millis = started.elapsed().as_secs_f64() * 1e3;
    match answer {
        Ok((value, result)) => {
            println!("{}", json!({"step": name, "ok": true, "ms": millis, "answer": result}));
            Some(value)
        }
        Err(error) => {
            println!("{}", json!({"step": name, "ok": false, "ms": millis, "error": error.to_string()}));
            None
        }
    }
}
