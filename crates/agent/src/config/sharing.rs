//! Device sharing: several containers on one GPU, by time-slicing or MPS.

use std::str::FromStr;

use super::read::Field;
use super::{InvalidValue, ResourceName};

/// Sharing settings.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Sharing {
    /// Time-slicing.
    pub time_slicing: Option<Shared>,
    /// MPS.
    pub mps: Option<Shared>,
}

/// The effective sharing strategy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SharingStrategy {
    /// Exclusive.
    None,
    /// Time-slicing.
    TimeSlicing,
    /// MPS.
    Mps,
}

impl SharingStrategy {
    /// The value used in labels.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::TimeSlicing => "time-slicing",
            Self::Mps => "mps",
        }
    }
}

impl Sharing {
    /// The effective strategy: MPS takes precedence over time-slicing.
    pub fn strategy(&self) -> SharingStrategy {
        let shares = |shared: &Option<Shared>| shared.as_ref().is_some_and(Shared::shares);
        match (shares(&self.mps), shares(&self.time_slicing)) {
            (true, _) => SharingStrategy::Mps,
            (false, true) => SharingStrategy::TimeSlicing,
            (false, false) => SharingStrategy::None,
        }
    }

    /// The effective block: MPS if both are set.
    pub fn shared(&self) -> Option<&Shared> {
        self.mps.as_ref().or(self.time_slicing.as_ref())
    }

    /// The sharing of a resource, if it is shared.
    pub fn of(&self, resource: &ResourceName) -> Option<&Replicated> {
        self.shared()?.resources.iter().find(|shared| shared.name == *resource)
    }
}

/// The resources shared by one strategy.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Shared {
    /// Shared resources get the `.shared` suffix.
    pub rename_by_default: bool,
    /// A container may request one replica at most.
    pub fail_requests_greater_than_one: bool,
    /// The shared resources.
    pub resources: Vec<Replicated>,
}

impl Shared {
    fn shares(&self) -> bool {
        self.resources.iter().any(|resource| resource.replicas > 1)
    }
}

/// A shared resource.
#[derive(Debug, Clone, PartialEq)]
pub struct Replicated {
    /// Its name.
    pub name: ResourceName,
    /// Its name when shared, if different.
    pub rename: Option<ResourceName>,
    /// Replicas per device.
    pub replicas: u32,
    /// MPS: active thread percentage per client, instead of an equal share.
    pub thread_percentage: Option<u32>,
    /// MPS: memory limit per client in MiB, instead of an equal share.
    pub memory_mib: Option<u64>,
}

impl Replicated {
    /// The resource name it is advertised under.
    pub fn advertised_name(&self) -> &ResourceName {
        self.rename.as_ref().unwrap_or(&self.name)
    }
}

/// Which devices of a resource are shared. Validated, but all of them always are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplicatedDevices {
    /// All of them.
    All,
    /// This many.
    Count(u32),
    /// These.
    List(Vec<DeviceRef>),
}

/// A device reference in that list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeviceRef {
    /// GPU index.
    Gpu(u32),
    /// GPU index and MIG device index.
    Mig(u32, u32),
    /// A UUID.
    Uuid(String),
}

impl FromStr for DeviceRef {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let number = |text: &str| text.parse::<u32>().map_err(|_| ());
        if let Some((gpu, part)) = text.split_once(':') {
            return Ok(Self::Mig(number(gpu)?, number(part)?));
        }
        if let Some(legacy) = text.strip_prefix("MIG-GPU-") {
            let parts: Vec<&str> = legacy.split('/').collect();
            let [_, gi, ci] = parts[..] else { return Err(()) };
            number(gi)?;
            number(ci)?;
            return uuid(parts[0]).then(|| Self::Uuid(text.to_owned())).ok_or(());
        }
        if let Some(rest) = text.strip_prefix("GPU-").or_else(|| text.strip_prefix("MIG-")) {
            return uuid(rest).then(|| Self::Uuid(text.to_owned())).ok_or(());
        }
        number(text).map(Self::Gpu)
    }
}

fn uuid(text: &str) -> bool {
    let groups: Vec<&str> = text.split('-').collect();
    let hex = |text: &&str| text.bytes().all(|byte| byte.is_ascii_hexdigit());
    groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12]) && groups.iter().all(hex)
}

pub(super) fn read(field: &Field<'_>, warnings: &mut Vec<String>) -> Result<Sharing, InvalidValue> {
    let mut sharing = Sharing::default();
    let Some(mut table) = field.table()? else { return Ok(sharing) };
    let blocks = [("timeSlicing", false, &mut sharing.time_slicing), ("mps", true, &mut sharing.mps)];
    for (key, fail, block) in blocks {
        *block = table.take(key).map(|field| shared(&field, fail, warnings)).transpose()?;
    }
    table.finish(warnings);
    Ok(sharing)
}

fn shared(field: &Field<'_>, fail: bool, warnings: &mut Vec<String>) -> Result<Shared, InvalidValue> {
    let missing = "shares nothing; write resources, or leave the block out";
    let Some(mut table) = field.table()? else { return Err(field.wrong(missing)) };
    let rename_by_default = table.boolean("renameByDefault")?.unwrap_or(false);
    let fail_requests_greater_than_one = table.boolean("failRequestsGreaterThanOne")?.unwrap_or(fail);
    let list = table.take("resources").ok_or_else(|| field.wrong(missing))?;
    let items = list.list().ok_or_else(|| list.wrong("is no list of resources"))?;
    let mut resources = Vec::new();
    for item in &items {
        resources.push(replicated(item, rename_by_default, warnings)?);
    }
    table.finish(warnings);
    Ok(Shared { rename_by_default, fail_requests_greater_than_one, resources })
}

fn replicated(field: &Field<'_>, rename: bool, warnings: &mut Vec<String>) -> Result<Replicated, InvalidValue> {
    let Some(mut table) = field.table()? else { return Err(field.wrong("names no resource; write name and replicas")) };
    let name =
        table.take("name").ok_or_else(|| field.wrong("has no name; write the resource, such as nvidia.com/gpu"))?;
    let name = ResourceName::parse(&name.path, &name.text()?)?;
    let few = "is too few; write 2 or more, or leave the resource out";
    let count = table.take("replicas").ok_or_else(|| field.wrong("has no replicas; write 2 or more"))?;
    let replicas = count.value.as_u64().and_then(|replicas| u32::try_from(replicas).ok());
    let replicas = replicas.filter(|&replicas| replicas >= 2).ok_or_else(|| count.wrong(few))?;
    if let Some(own) = table.take("rename") {
        ResourceName::parse(&own.path, &own.text()?)?;
        warnings.push(format!("{}: reserved, has no effect; set renameByDefault", own.path));
    }
    if let Some(which) = table.take("devices")
        && devices(&which)? != ReplicatedDevices::All
    {
        warnings.push(format!("{}: reserved, has no effect; all devices are shared", which.path));
    }
    let percent = table.take("activeThreadPercentage").map(|field| within(&field, 1, 100)).transpose()?;
    let memory = table.take("pinnedMemoryMiB").map(|field| within(&field, 1, 1 << 30)).transpose()?;
    table.finish(warnings);
    // Reject a name that is too long after renaming here, where the user sees why.
    let rename = rename.then(|| ResourceName::parse(&table_path(field), name.shared().as_str())).transpose()?;
    let thread_percentage = percent.and_then(|percent| u32::try_from(percent).ok());
    Ok(Replicated { name, rename, replicas, thread_percentage, memory_mib: memory })
}

fn table_path(field: &Field<'_>) -> String {
    format!("{}.name", field.path)
}

fn within(field: &Field<'_>, least: u64, most: u64) -> Result<u64, InvalidValue> {
    let number = field.value.as_u64().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| field.wrong(&format!("is out of range; write a number from {least} to {most}")))
}

fn devices(field: &Field<'_>) -> Result<ReplicatedDevices, InvalidValue> {
    let fix = "names no devices; write all, a count, or a list of indices and UUIDs";
    if field.value.as_str() == Some("all") {
        return Ok(ReplicatedDevices::All);
    }
    if let Some(count) = field.value.as_u64() {
        let count = u32::try_from(count).ok().filter(|&count| count > 0);
        return count.map(ReplicatedDevices::Count).ok_or_else(|| field.wrong(fix));
    }
    let items = field.list().filter(|items| !items.is_empty()).ok_or_else(|| field.wrong(fix))?;
    let refs = items.iter().map(|item| item.text()?.parse::<DeviceRef>().map_err(|()| item.wrong(fix)));
    Ok(ReplicatedDevices::List(refs.collect::<Result<_, InvalidValue>>()?))
}
