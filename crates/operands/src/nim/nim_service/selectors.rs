//! Device selectors as CEL expressions for DRA.

use capstan_api::nim::dra::{AttributeSelector, AttributeValue, CapacitySelector, DeviceRequest, SelectorOperator};
use capstan_plan::kit::quantity;
use kube_cel::cel::Program;

/// The default DRA driver.
const DRIVER: &str = "gpu.nvidia.com";

/// Driver of the devices of a request.
pub(super) fn driver(request: &DeviceRequest) -> &str {
    request.driver_name.as_deref().filter(|name| !name.is_empty()).unwrap_or(DRIVER)
}

/// The expressions of a request, that for the driver first. An error is a message to follow the field name.
pub(super) fn expressions(request: &DeviceRequest) -> Result<Vec<String>, String> {
    let mut list = vec![format!("device.driver == {}", quoted(driver(request)))];
    let own = request.cel_expressions.as_deref().unwrap_or_default();
    for (index, expression) in own.iter().enumerate() {
        if let Err(error) = Program::compile(expression) {
            let line = error.to_string().lines().next().unwrap_or_default().to_owned();
            return Err(format!("celExpressions[{index}] is {expression:?}, which is no CEL: {line}"));
        }
        list.push(expression.clone());
    }
    for (index, selector) in request.attribute_selectors.iter().flatten().enumerate() {
        let text = attribute(request, selector).map_err(|fault| format!("attributeSelectors[{index}].{fault}"))?;
        list.push(text);
    }
    list.extend(request.capacity_selectors.iter().flatten().map(|selector| capacity(request, selector)));
    Ok(list)
}

/// A qualified key: `a/b` has a domain, `b` is in that of the driver.
pub(super) fn qualified(request: &DeviceRequest, key: &str) -> (String, String) {
    let (domain, name) = key.split_once('/').unwrap_or((driver(request), key));
    (domain.into(), name.into())
}

fn attribute(request: &DeviceRequest, selector: &AttributeSelector) -> Result<String, String> {
    let (domain, name) = qualified(request, &selector.key);
    let (left, op) = (format!("device.attributes[{}].{name}", quoted(&domain)), operator(selector.op));
    let only_equal = |what: &str| match selector.op {
        SelectorOperator::Equal | SelectorOperator::NotEqual => Ok(()),
        other => Err(format!("op is {other:?}, but {what} can only be Equal or NotEqual")),
    };
    let value = selector.value.clone().unwrap_or_default();
    match value {
        AttributeValue { bool_value: Some(value), int_value: None, string_value: None, version_value: None } => {
            only_equal("a boolean").map(|()| format!("{left} {op} {value}"))
        }
        AttributeValue { bool_value: None, int_value: Some(value), string_value: None, version_value: None } => {
            Ok(format!("{left} {op} {value}"))
        }
        AttributeValue { bool_value: None, int_value: None, string_value: Some(value), version_value: None } => {
            only_equal("a string").map(|()| format!("{left} {op} {}", quoted(&value)))
        }
        AttributeValue { bool_value: None, int_value: None, string_value: None, version_value: Some(value) } => {
            if !is_semver(&value) {
                return Err(format!(
                    "value.versionValue is {value:?}: write a semantic version without leading zeros, such as 550.127.8"
                ));
            }
            Ok(format!("({left}).compareTo(semver({})) {op} 0", quoted(&value)))
        }
        _ => Err("value must have exactly one of boolValue, intValue, stringValue and versionValue: set one".into()),
    }
}

fn capacity(request: &DeviceRequest, selector: &CapacitySelector) -> String {
    let (domain, name) = qualified(request, &selector.key);
    let (op, value) = (operator(selector.op), quoted(&quantity::canonical(&selector.value)));
    format!("(device.capacity[{}].{name}).compareTo(quantity({value})) {op} 0", quoted(&domain))
}

fn operator(op: SelectorOperator) -> &'static str {
    match op {
        SelectorOperator::Equal => "==",
        SelectorOperator::NotEqual => "!=",
        SelectorOperator::GreaterThan => ">",
        SelectorOperator::GreaterThanOrEqual => ">=",
        SelectorOperator::LessThan => "<",
        SelectorOperator::LessThanOrEqual => "<=",
    }
}

/// A string literal: CEL reads JSON's.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// Whether `text` is a semantic version 2.0: three numbers without leading zeros, then perhaps a pre-release and a build.
fn is_semver(text: &str) -> bool {
    let (rest, build) = text.split_once('+').map_or((text, None), |(rest, build)| (rest, Some(build)));
    let (core, before) = rest.split_once('-').map_or((rest, None), |(core, before)| (core, Some(before)));
    let number = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()) && (part == "0" || !part.starts_with('0'))
    };
    let word = |part: &str| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    let numeric = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    let parts: Vec<&str> = core.split('.').collect();
    parts.len() == 3
        && parts.into_iter().all(number)
        && before.is_none_or(|text| text.split('.').all(|part| word(part) && (!numeric(part) || number(part))))
        && build.is_none_or(|text| text.split('.').all(word))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn request(edit: Value) -> DeviceRequest {
        let mut request = json!({"name": "gpu", "count": 1, "deviceClassName": "gpu.nvidia.com"});
        request.as_object_mut().unwrap().extend(edit.as_object().unwrap().clone());
        serde_json::from_value(request).unwrap()
    }

    #[test]
    fn every_type_of_value_has_its_comparison() {
        let cases = [
            (
                json!({"key": "mig", "op": "Equal", "value": {"boolValue": true}}),
                r#"device.attributes["gpu.nvidia.com"].mig == true"#,
            ),
            (
                json!({"key": "index", "op": "GreaterThanOrEqual", "value": {"intValue": 8}}),
                r#"device.attributes["gpu.nvidia.com"].index >= 8"#,
            ),
            (
                json!({"key": "a.b/type", "op": "NotEqual", "value": {"stringValue": "x\"y"}}),
                r#"device.attributes["a.b"].type != "x\"y""#,
            ),
            (
                json!({"key": "driverVersion", "op": "LessThan", "value": {"versionValue": "550.127.8"}}),
                r#"(device.attributes["gpu.nvidia.com"].driverVersion).compareTo(semver("550.127.8")) < 0"#,
            ),
        ];
        for (selector, expected) in cases {
            let list = expressions(&request(json!({"attributeSelectors": [selector]}))).unwrap();
            assert_eq!(list, [r#"device.driver == "gpu.nvidia.com""#, expected]);
        }
        let memory =
            json!({"capacitySelectors": [{"key": "memory", "op": "GreaterThan", "value": "1.5"}], "driverName": "d"});
        let expected = r#"(device.capacity["d"].memory).compareTo(quantity("1500m")) > 0"#;
        assert_eq!(expressions(&request(memory)).unwrap(), [r#"device.driver == "d""#, expected]);
    }

    #[test]
    fn expressions_of_the_user_are_passed_on_if_they_are_cel() {
        let own = r#"!device.attributes["gpu.nvidia.com"].mig"#;
        assert_eq!(expressions(&request(json!({"celExpressions": [own]}))).unwrap()[1], own);
        let fault = expressions(&request(json!({"celExpressions": ["device.("]}))).unwrap_err();
        assert!(fault.starts_with(r#"celExpressions[0] is "device.(", which is no CEL"#), "{fault}");
    }

    #[test]
    fn what_cannot_be_compared_is_said() {
        let cases = [
            (
                json!({"key": "a", "op": "LessThan", "value": {"boolValue": true}}),
                "op is LessThan, but a boolean can only be Equal or NotEqual",
            ),
            (
                json!({"key": "a", "op": "GreaterThan", "value": {"stringValue": "x"}}),
                "op is GreaterThan, but a string",
            ),
            (json!({"key": "a", "op": "Equal"}), "value must have exactly one of"),
            (
                json!({"key": "a", "op": "Equal", "value": {"intValue": 1, "boolValue": true}}),
                "value must have exactly one of",
            ),
            (
                json!({"key": "a", "op": "Equal", "value": {"versionValue": "550.127.08"}}),
                "value.versionValue is \"550.127.08\"",
            ),
        ];
        for (selector, expected) in cases {
            let fault = expressions(&request(json!({"attributeSelectors": [selector]}))).unwrap_err();
            assert!(fault.starts_with(&format!("attributeSelectors[0].{expected}")), "{fault}");
        }
    }

    #[test]
    fn semantic_versions() {
        for good in ["1.2.3", "550.127.8", "1.0.0-rc.1+build.05", "0.0.0"] {
            assert!(is_semver(good), "{good}");
        }
        for bad in ["550.127.08", "1.2", "1.2.3.4", "v1.2.3", "1.2.3-01", ""] {
            assert!(!is_semver(bad), "{bad}");
        }
    }
}
