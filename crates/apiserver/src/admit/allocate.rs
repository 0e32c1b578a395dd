//! Allocation of cluster IPs and node ports.
//!
//! Allocated values are known from the services in the store and from allocations since. A value whose service was
//! never stored, or has released it, is reclaimed when another service needs it.

use std::collections::HashMap;
use std::hash::Hash;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

use super::Addresses;
use super::json::Read;
use crate::ops::Server;
use crate::store::{Selection, TableKey};

/// Maximum size of the range's static band, from which addresses are allocated only on request.
const MOST_RESERVED: u32 = 256;

/// Allocates cluster IPs and node ports.
#[derive(Debug, Default)]
pub(super) struct Allocator {
    addresses: Addresses,
    taken: Mutex<Allocated>,
}

#[derive(Debug, Default)]
struct Allocated {
    loaded: bool,
    ips: HashMap<Ipv4Addr, Owner>,
    ports: HashMap<u16, Owner>,
}

/// The service that holds a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    pub(super) uid: Arc<str>,
}

impl Owner {
    /// The owner for a service.
    pub(super) fn of(service: &Value) -> Self {
        let meta = &service["metadata"];
        Self { namespace: meta.text("namespace").into(), name: meta.text("name").into(), uid: meta.text("uid").into() }
    }
}

/// An allocated value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Allocation {
    Ip(Ipv4Addr),
    Port(u16),
}

impl Allocator {
    pub(super) fn new(addresses: Addresses) -> Self {
        Self { addresses, taken: Mutex::default() }
    }

    /// Allocates a requested address, or returns why it cannot.
    pub(super) fn take_ip(&self, server: &Server, owner: &Owner, ip: Ipv4Addr, keep: bool) -> Result<(), String> {
        let first = u32::from(self.addresses.network);
        let offset = u32::from(ip).wrapping_sub(first);
        if u32::from(ip) <= first || offset >= self.size() - 1 {
            return Err("the provided network does not match the current range".into());
        }
        let mut taken = self.lock(server);
        if is_taken(server, &taken.ips, ip, Allocation::Ip(ip), owner) {
            return Err("provided IP is already allocated".into());
        }
        if keep {
            taken.ips.insert(ip, owner.clone());
        }
        Ok(())
    }

    /// Allocates any free address.
    pub(super) fn next_ip(&self, server: &Server, owner: &Owner, keep: bool) -> Option<Ipv4Addr> {
        let last = self.size().checked_sub(2)?;
        let reserved = (self.size() / 16).clamp(16, MOST_RESERVED).min(last);
        let mut taken = self.lock(server);
        let first = u32::from(self.addresses.network);
        let at = |offset: u32| Ipv4Addr::from(first + offset);
        let free = |taken: &Allocated, offset: u32| !taken.ips.contains_key(&at(offset));
        let upper = last - reserved;
        let start = if upper == 0 { 0 } else { server.ids().next() as u32 % upper };
        let high = (0..upper).map(|step| reserved + 1 + (start + step) % upper).find(|offset| free(&taken, *offset));
        let offset = match high.or_else(|| (1..=reserved).find(|offset| free(&taken, *offset))) {
            Some(offset) => offset,
            // The range is full: reclaim released addresses.
            None => (1..=last)
                .find(|offset| !is_taken(server, &taken.ips, at(*offset), Allocation::Ip(at(*offset)), owner))?,
        };
        if keep {
            taken.ips.insert(at(offset), owner.clone());
        }
        Some(at(offset))
    }

    /// Allocates a requested port, or returns why it cannot.
    pub(super) fn take_port(&self, server: &Server, owner: &Owner, port: i64, keep: bool) -> Result<(), String> {
        let range = &self.addresses.ports;
        let Some(port) = u16::try_from(port).ok().filter(|port| range.contains(port)) else {
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {}-{}",
                range.start(),
                range.end()
            ));
        };
        let mut taken = self.lock(server);
        if is_taken(server, &taken.ports, port, Allocation::Port(port), owner) {
            return Err("provided port is already allocated".into());
        }
        if keep {
            taken.ports.insert(port, owner.clone());
        }
        Ok(())
    }

    /// Allocates any free port.
    pub(super) fn next_port(&self, server: &Server, owner: &Owner, keep: bool) -> Option<u16> {
        let (first, count) = (*self.addresses.ports.start(), self.addresses.ports.len() as u64);
        let start = server.ids().next() % count.max(1);
        let mut taken = self.lock(server);
        let mut all = (0..count).map(|step| first + u16::try_from((start + step) % count).unwrap_or(0));
        let port = match all.clone().find(|port| !taken.ports.contains_key(port)) {
            Some(port) => port,
            None => all.find(|port| !is_taken(server, &taken.ports, *port, Allocation::Port(*port), owner))?,
        };
        if keep {
            taken.ports.insert(port, owner.clone());
        }
        Some(port)
    }

    /// Releases everything that a service holds.
    pub(super) fn release(&self, uid: &str) {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        taken.ips.retain(|_, owner| &*owner.uid != uid);
        taken.ports.retain(|_, owner| &*owner.uid != uid);
    }

    fn size(&self) -> u32 {
        1_u32 << (32 - u32::from(self.addresses.prefix.clamp(8, 31)))
    }

    fn lock(&self, server: &Server) -> MutexGuard<'_, Allocated> {
        let mut taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        if !taken.loaded {
            taken.loaded = true;
            for service in server.store().select(&services(), &Selection::default()) {
                let service = service.value();
                let owner = Owner::of(&service);
                for held in allocations(&service) {
                    match held {
                        Allocation::Ip(ip) => drop(taken.ips.insert(ip, owner.clone())),
                        Allocation::Port(port) => drop(taken.ports.insert(port, owner.clone())),
                    }
                }
            }
        }
        taken
    }
}

fn services() -> TableKey {
    TableKey::new("", "services")
}

/// Whether another live service holds the value.
fn is_taken<K: Eq + Hash>(server: &Server, taken: &HashMap<K, Owner>, key: K, held: Allocation, owner: &Owner) -> bool {
    let Some(other) = taken.get(&key).filter(|other| other.uid != owner.uid) else { return false };
    let live = server.store().get(&services(), &other.namespace, &other.name);
    live.is_some_and(|live| live.uid == other.uid && allocations(&live.value()).contains(&held))
}

fn allocations(service: &Value) -> Vec<Allocation> {
    let spec = &service["spec"];
    let ips = spec.list("clusterIPs").iter().filter_map(|ip| ip.as_str()?.parse().ok()).map(Allocation::Ip);
    let ports = spec.list("ports").iter().filter_map(|port| port.number("nodePort"));
    let ports = ports.chain(spec.number("healthCheckNodePort"));
    ips.chain(ports.filter_map(|port| u16::try_from(port).ok()).filter(|port| *port > 0).map(Allocation::Port))
        .collect()
}
