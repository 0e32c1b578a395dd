//! Model name discovery from the server's API.

use serde_json::Value;

/// Path that lists the served models.
pub const MODELS: &str = "/v1/models";
/// Path of servers without [`MODELS`].
pub const METADATA: &str = "/v1/metadata";

/// Parses a response of [`MODELS`]: the name, which may be empty; `None` if [`METADATA`] must be queried.
pub fn from_models(status: u16, body: &[u8]) -> Result<Option<String>, String> {
    if status == 404 {
        return Ok(None);
    }
    let answer = json(MODELS, status, body)?;
    if answer["object"] != "list" {
        return Err(format!("{MODELS} answered with no list of models"));
    }
    let models = answer["data"].as_array().map(Vec::as_slice).unwrap_or_default();
    // Adapters are listed beside their base model, which is its own root.
    let base = |model: &&Value| model["object"] == "model" && model["root"] == model["id"];
    let chosen = match models {
        [one] => Some(one),
        several => several.iter().find(base),
    };
    Ok(Some(chosen.and_then(|model| model["id"].as_str()).unwrap_or_default().to_owned()))
}

/// Parses a response of [`METADATA`]; empty if it has no name.
pub fn from_metadata(status: u16, body: &[u8]) -> Result<String, String> {
    if status == 404 {
        return Ok(String::new());
    }
    let answer = json(METADATA, status, body)?;
    let name = answer["modelInfo"][0]["shortName"].as_str().unwrap_or_default();
    Ok(name.split(':').next().unwrap_or_default().to_owned())
}

fn json(path: &str, status: u16, body: &[u8]) -> Result<Value, String> {
    if status != 200 {
        return Err(format!("{path} answered with HTTP {status}"));
    }
    serde_json::from_slice(body).map_err(|error| format!("{path} answered with no JSON: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_model_is_told_from_its_adapters() {
        let name = |body: &str| from_models(200, body.as_bytes()).unwrap().unwrap();
        assert_eq!(name(r#"{"object":"list","data":[{"id":"odd","object":"thing"}]}"#), "odd");
        let adapters = r#"{"object":"list","data":[
            {"id":"lora","object":"model","root":"base"},{"id":"base","object":"model","root":"base"}]}"#;
        assert_eq!(name(adapters), "base");
        assert_eq!(name(r#"{"object":"list","data":[]}"#), "");
    }

    #[test]
    fn what_is_no_answer_is_said() {
        assert!(from_models(500, b"").unwrap_err().contains("HTTP 500"));
        assert!(from_models(200, b"{").unwrap_err().contains("no JSON"));
        assert!(from_models(200, br#"{"object":"x"}"#).unwrap_err().contains("no list"));
    }

    #[test]
    fn servers_without_a_list_tell_in_their_metadata() {
        assert_eq!(from_models(404, b""), Ok(None));
        let body = br#"{"modelInfo":[{"shortName":"dummy-model:1.0"}]}"#;
        assert_eq!(from_metadata(200, body), Ok("dummy-model".into()));
        assert_eq!(from_metadata(200, b"{}"), Ok(String::new()));
        assert_eq!(from_metadata(404, b""), Ok(String::new()));
    }
}
