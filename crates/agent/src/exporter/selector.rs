//! Device selector: `f` for MIG devices where they exist and whole GPUs elsewhere, `g` for GPUs, `i` for GPU instances,
//! each with an optional list such as `:0,2-4`.

use std::str::FromStr;

use capstan_hw::gpu::nvidia::{Gpu, Inventory, MigDevice};

/// A device selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Selector {
    /// MIG devices where there are some, whole GPUs elsewhere.
    Flexible,
    /// Whole GPUs: all, or those with these indices.
    Gpus(Option<Vec<u32>>),
    /// MIG devices: all, or those of these GPU instances.
    Instances(Option<Vec<u32>>),
}

impl FromStr for Selector {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = |why: &str| format!("'{text}' {why}; write f, g, i, g:0,2-4 or i:1");
        let (kind, ids) = match text.split_once(':') {
            None => (text, None),
            Some((kind, ids)) => (kind, Some(ranges(ids).ok_or_else(|| wrong("has no list of numbers after ':'"))?)),
        };
        match (kind, ids) {
            ("f", None) => Ok(Self::Flexible),
            ("f", Some(_)) => Err(wrong("chooses among all: 'f' takes no list")),
            ("g", ids) => Ok(Self::Gpus(ids)),
            ("i", ids) => Ok(Self::Instances(ids)),
            _ => Err(wrong("chooses no devices")),
        }
    }
}

/// Parses `0,2-4`. Ranges are bounded, so that a typo cannot exhaust memory.
fn ranges(text: &str) -> Option<Vec<u32>> {
    const MAX_INDEX: u32 = 4096;
    let mut numbers = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (u32, u32) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        if first > last || last > MAX_INDEX {
            return None;
        }
        numbers.extend(first..=last);
    }
    Some(numbers)
}

impl Selector {
    /// The selected devices, in order.
    pub fn choose<'a>(&self, inventory: &'a Inventory) -> Vec<(&'a Gpu, Option<&'a MigDevice>)> {
        let whole = |gpu: &'a Gpu| (gpu, None);
        let parts = |gpu: &'a Gpu| gpu.mig_devices.iter().map(move |part| (gpu, Some(part)));
        let gpus = inventory.gpus.iter();
        match self {
            Self::Flexible => gpus
                .flat_map(|gpu| {
                    let cut = !gpu.mig_devices.is_empty();
                    let all = if cut { None } else { Some(whole(gpu)) };
                    all.into_iter().chain(parts(gpu))
                })
                .collect(),
            Self::Gpus(ids) => gpus.filter(|gpu| wanted(ids, gpu.index)).map(whole).collect(),
            Self::Instances(ids) => {
                gpus.flat_map(parts).filter(|(_, part)| part.is_some_and(|part| wanted(ids, part.gi))).collect()
            }
        }
    }

    /// Rejects indices that do not exist.
    pub fn check(&self, inventory: &Inventory) -> Result<(), String> {
        let (what, ids, there): (_, _, Vec<u32>) = match self {
            Self::Gpus(Some(ids)) => ("GPU", ids, inventory.gpus.iter().map(|gpu| gpu.index).collect()),
            Self::Instances(Some(ids)) => {
                let parts = inventory.gpus.iter().flat_map(|gpu| &gpu.mig_devices);
                ("GPU instance", ids, parts.map(|part| part.gi).collect())
            }
            _ => return Ok(()),
        };
        match ids.iter().find(|id| !there.contains(id)) {
            Some(id) => Err(format!("--devices names {what} {id}, which is not there; there are {there:?}")),
            None => Ok(()),
        }
    }
}

fn wanted(ids: &Option<Vec<u32>>, id: u32) -> bool {
    ids.as_ref().is_none_or(|ids| ids.contains(&id))
}

#[cfg(test)]
mod tests {
    use super::*;
    use capstan_hw::fake::{Model, node};
    use proptest::prelude::*;

    #[test]
    fn selectors_are_read() {
        let cases = [
            ("f", Some(Selector::Flexible)),
            ("g", Some(Selector::Gpus(None))),
            ("g:0,2-4", Some(Selector::Gpus(Some(vec![0, 2, 3, 4])))),
            ("i:7", Some(Selector::Instances(Some(vec![7])))),
            ("f:0", None),
            ("g:", None),
            ("g:1:2", None),
            ("g:4-2", None),
            ("x", None),
            ("", None),
            ("g:0-4294967295", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(text.parse::<Selector>().ok(), wanted, "{text}");
        }
    }

    #[test]
    fn flexible_means_parts_where_there_are_some() {
        let inventory = node(Model::H200, 2).with_mig(0, &["1g.18gb", "2g.35gb"]).inventory;
        let chosen = |text: &str| text.parse::<Selector>().expect("a selector").choose(&inventory).len();
        assert_eq!([chosen("f"), chosen("g"), chosen("i"), chosen("g:1")], [3, 2, 2, 1]);
    }

    #[test]
    fn a_device_that_is_not_there_is_refused() {
        let inventory = node(Model::H200, 2).inventory;
        let check = |text: &str| text.parse::<Selector>().expect("a selector").check(&inventory);
        assert_eq!(check("g:0-1"), Ok(()));
        assert_eq!(
            check("g:0,5").expect_err("not there"),
            "--devices names GPU 5, which is not there; there are [0, 1]"
        );
    }

    proptest! {
        #[test]
        fn any_text_is_answered(text in ".{0,40}") {
            let _ = text.parse::<Selector>();
        }
    }
}
