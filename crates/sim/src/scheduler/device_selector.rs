//! CEL device selectors: `device.attributes["driver"].model == "A100"`. Results are cached, as the same few expressions
//! are evaluated on the same devices for every pod.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use k8s_openapi::api::resource::v1::{Device, DeviceAttribute, ResourceSlice};
use kube_cel::KubeCelExt;
use kube_cel::cel::{Context, Program, Value};

/// Maximum number of cached results.
const MAX_CACHED_RESULTS: usize = 100_000;

type MatchResult = Result<bool, String>;

/// Compiled selectors and cached results.
#[derive(Default)]
pub(super) struct Selectors {
    state: Mutex<CacheState>,
}

#[derive(Default)]
struct CacheState {
    programs: HashMap<String, Arc<Result<Program, String>>>,
    /// By expression, then slice name, slice version and device.
    results: HashMap<String, HashMap<(String, String, String), MatchResult>>,
    count: usize,
}

impl std::fmt::Debug for Selectors {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Selectors").finish_non_exhaustive()
    }
}

impl Selectors {
    /// Whether an expression selects a device.
    pub(super) fn matches(&self, expression: &str, slice: &ResourceSlice, device: &Device) -> MatchResult {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let key = (text(&slice.metadata.name), text(&slice.metadata.resource_version), device.name.clone());
        let program = {
            let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(answer) = known.results.get(expression).and_then(|results| results.get(&key)) {
                return answer.clone();
            }
            known.programs.entry(expression.to_owned()).or_insert_with(|| Arc::new(compile(expression))).clone()
        };
        let answer = match &*program {
            Ok(program) => evaluate(program, &slice.spec.driver, device),
            Err(error) => Err(error.clone()),
        };
        let mut known = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if known.count >= MAX_CACHED_RESULTS {
            known.results.clear();
            known.count = 0;
        }
        known.count += 1;
        known.results.entry(expression.to_owned()).or_default().insert(key, answer.clone());
        answer
    }
}

fn compile(expression: &str) -> Result<Program, String> {
    Program::compile(expression).map_err(|error| format!("CEL compile error: {error}"))
}

fn evaluate(program: &Program, driver: &str, device: &Device) -> MatchResult {
    let mut context = Context::default().with_all();
    let device = describe(driver, device, program, &context);
    context.add_variable_from_value("device", device);
    match program.execute(&context) {
        Ok(Value::Bool(selected)) => Ok(selected),
        Ok(other) => Err(format!("CEL result is not a bool: {other:?}")),
        Err(error) => Err(format!("CEL runtime error: {error}")),
    }
}

/// The CEL variable `device`.
fn describe(driver: &str, device: &Device, program: &Program, context: &Context<'_>) -> Value {
    let split = |name: &str| match name.split_once('/') {
        Some((domain, name)) => (domain.to_owned(), name.to_owned()),
        None => (driver.to_owned(), name.to_owned()),
    };
    // A domain without attributes is an empty map, not an error.
    let mut domains: BTreeSet<String> = strings_in(program);
    domains.insert(driver.to_owned());
    let empty = || domains.iter().map(|domain| (domain.clone(), BTreeMap::new())).collect::<BTreeMap<_, _>>();
    let (mut attributes, mut capacity) = (empty(), empty());
    for (name, attribute) in device.attributes.iter().flatten() {
        let (domain, name) = split(name);
        attributes.entry(domain).or_default().insert(name, value_of(attribute, context));
    }
    for (name, amount) in device.capacity.iter().flatten() {
        let (domain, name) = split(name);
        capacity.entry(domain).or_default().insert(name, call("quantity(x)", &amount.value.0, context));
    }
    let members: HashMap<String, Value> = HashMap::from([
        ("driver".to_owned(), text(driver)),
        ("attributes".to_owned(), map(attributes)),
        ("capacity".to_owned(), map(capacity)),
        ("allowMultipleAllocations".to_owned(), Value::Bool(device.allow_multiple_allocations == Some(true))),
    ]);
    members.into()
}

fn value_of(attribute: &DeviceAttribute, context: &Context<'_>) -> Value {
    match attribute {
        DeviceAttribute { int: Some(number), .. } => Value::Int(*number),
        DeviceAttribute { bool: Some(flag), .. } => Value::Bool(*flag),
        DeviceAttribute { string: Some(string), .. } => text(string),
        DeviceAttribute { version: Some(version), .. } => call("semver(x)", version, context),
        DeviceAttribute { ints: Some(list), .. } => list.iter().copied().map(Value::Int).collect::<Vec<_>>().into(),
        DeviceAttribute { bools: Some(list), .. } => list.iter().copied().map(Value::Bool).collect::<Vec<_>>().into(),
        DeviceAttribute { strings: Some(list), .. } => list.iter().map(|s| text(s)).collect::<Vec<_>>().into(),
        DeviceAttribute { versions: Some(list), .. } => {
            list.iter().map(|version| call("semver(x)", version, context)).collect::<Vec<_>>().into()
        }
        _ => Value::Null,
    }
}

/// A value of a type that has no literal: created by a CEL function.
fn call(expression: &str, argument: &str, context: &Context<'_>) -> Value {
    let mut inner = context.new_inner_scope();
    inner.add_variable_from_value("x", text(argument));
    let made = Program::compile(expression).ok().and_then(|program| program.execute(&inner).ok());
    made.unwrap_or(Value::Null)
}

fn text(text: &str) -> Value {
    Value::String(Arc::new(text.to_owned()))
}

fn map(domains: BTreeMap<String, BTreeMap<String, Value>>) -> Value {
    let domains = domains
        .into_iter()
        .map(|(domain, members)| (domain, members.into_iter().collect::<HashMap<String, Value>>().into()));
    domains.collect::<HashMap<String, Value>>().into()
}

/// The string literals of an expression: they include the domains that it reads.
fn strings_in(program: &Program) -> BTreeSet<String> {
    let text = format!("{:?}", program.expression());
    text.split('"').skip(1).step_by(2).filter(|part| !part.is_empty()).map(str::to_owned).collect()
}
