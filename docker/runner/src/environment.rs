//! The environment of a step: clean, with private folders on the container's tmpfs.

use std::env;
use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use crate::files;
use crate::layout::Layout;
use crate::trouble::Result;

/// What the image or the engine sets and a step needs; `NVIDIA_*` besides.
const PASSED_ON: [&str; 4] = ["PATH", "LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV"];
/// Kept from the overview to the capture: what was compiled is found there.
const CACHES: [(&str, &str); 5] = [
    ("TORCH_EXTENSIONS_DIR", "torch-extensions"),
    ("TORCHINDUCTOR_CACHE_DIR", "torchinductor"),
    ("TRITON_CACHE_DIR", "triton"),
    ("CUDA_CACHE_PATH", "cuda-cache"),
    ("XDG_CACHE_HOME", "cache"),
];
/// Made anew for every step: `ncu` looks for its configuration, rules and lock files there.
const FRESH: [(&str, &str); 2] = [("HOME", "home"), ("TMPDIR", "scratch")];

/// The environment of the container's steps.
#[derive(Debug)]
pub struct Environment {
    tmp: PathBuf,
    variables: Vec<(OsString, OsString)>,
}

impl Environment {
    /// Makes the cache folders.
    pub fn new(layout: &Layout) -> Result<Self> {
        let mut variables: Vec<(OsString, OsString)> = env::vars_os().filter(|(name, _)| is_passed_on(name)).collect();
        let mut set = |name: &str, value: &OsStr| variables.push((name.into(), value.into()));
        set("LANG", OsStr::new("C.UTF-8"));
        // Libraries ask for the user's name, and the user need not stand in the image's passwd.
        set("USER", OsStr::new("nobody"));
        // A crash in an extension's own code then says where it was called.
        set("PYTHONFAULTHANDLER", OsStr::new("1"));
        // Without it ncu deploys files into HOME and prints warnings ahead of an export.
        set("NV_COMPUTE_PROFILER_DISABLE_STOCK_FILE_DEPLOYMENT", OsStr::new("1"));
        // ncu and the program then talk over a Unix socket: TCP is denied.
        set("NV_COMPUTE_PROFILER_LOCAL_CONNECTION_OVERRIDE", OsStr::new("uds"));
        for (name, folder) in CACHES {
            let path = layout.tmp.join(folder);
            files::fresh_dir(&path)?;
            set(name, path.as_os_str());
        }
        for (name, folder) in FRESH {
            set(name, layout.tmp.join(folder).as_os_str());
        }
        Ok(Self { tmp: layout.tmp.clone(), variables })
    }

    /// The variables of the next step, whose HOME and TMPDIR are made anew.
    pub fn for_next_step(&self) -> Result<&[(OsString, OsString)]> {
        for (_, folder) in FRESH {
            files::fresh_dir(&self.tmp.join(folder))?;
        }
        Ok(&self.variables)
    }
}

fn is_passed_on(name: &OsStr) -> bool {
    PASSED_ON.iter().any(|passed| name == *passed) || name.as_encoded_bytes().starts_with(b"NVIDIA_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_but_the_named_variables_is_passed_on() {
        for name in ["PATH", "LD_LIBRARY_PATH", "NVIDIA_VISIBLE_DEVICES"] {
            assert!(is_passed_on(OsStr::new(name)), "{name}");
        }
        for name in ["LD_PRELOAD", "PYTHONPATH", "POPCORN_SEED", "HOME", "DATABASE_URL", "XNVIDIA_"] {
            assert!(!is_passed_on(OsStr::new(name)), "{name}");
        }
    }
}
