//! Which system calls a container may make.

use std::path::Path;

/// Our own list: what Python, CUDA and ncu need, and nothing else.
const BUILTIN: &str = include_str!("../../../docker/seccomp.json");

/// What `NCU_SERVICE_SECCOMP` names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seccomp {
    /// A list of what is allowed, as JSON in the engine's format.
    Profile(String),
    /// `default`: the engine's own.
    EngineDefault,
}

impl Seccomp {
    /// Reads `builtin`, `default`, or the path of a file with a list.
    pub(super) fn parse(value: &str) -> Result<Self, String> {
        match value {
            "builtin" => Ok(Self::Profile(BUILTIN.to_owned())),
            "default" => Ok(Self::EngineDefault),
            path if Path::new(path).is_absolute() => {
                let profile = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
                is_profile(&profile).map_err(|why| format!("{path} {why}"))?;
                Ok(Self::Profile(profile))
            }
            _ => Err("builtin, default or the absolute path of a seccomp profile is expected".to_owned()),
        }
    }

    /// As the engine is told; nothing where its own list is to stay.
    pub(super) fn security_option(&self) -> Option<String> {
        match self {
            Self::Profile(profile) => Some(format!("seccomp={profile}")),
            Self::EngineDefault => None,
        }
    }
}

/// The engine takes a file without a default action too, and then refuses to start containers.
fn is_profile(text: &str) -> Result<(), String> {
    let json: serde_json::Value = serde_json::from_str(text).map_err(|error| format!("is no JSON: {error}"))?;
    let default = json.get("defaultAction").and_then(serde_json::Value::as_str).ok_or("has no defaultAction")?;
    if default == "SCMP_ACT_ALLOW" {
        return Err("allows whatever it does not name; a list of what is allowed is expected".to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_list_allows_by_name_and_refuses_the_rest() {
        assert_eq!(is_profile(BUILTIN), Ok(()));
        assert_eq!(Seccomp::parse("builtin").unwrap().security_option(), Some(format!("seccomp={BUILTIN}")));
        assert_eq!(Seccomp::parse("default").unwrap().security_option(), None);
    }

    #[test]
    fn a_list_of_the_operators_is_read_at_the_start() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("profile.json");
        let parse = || Seccomp::parse(path.to_str().unwrap());
        assert!(parse().is_err());
        for wrong in ["", "[]", "{}", r#"{"defaultAction": 1}"#, r#"{"defaultAction": "SCMP_ACT_ALLOW"}"#] {
            std::fs::write(&path, wrong).unwrap();
            assert!(parse().is_err(), "{wrong}");
        }
        let good = r#"{"defaultAction": "SCMP_ACT_ERRNO"}"#;
        std::fs::write(&path, good).unwrap();
        assert_eq!(parse(), Ok(Seccomp::Profile(good.to_owned())));
        for wrong in ["unconfined", "", "profile.json"] {
            assert!(Seccomp::parse(wrong).is_err(), "{wrong}");
        }
    }
}
