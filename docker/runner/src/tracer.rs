//! Where the launch tracer and the library that it needs lie, and the variables that load them into a program.

use std::env;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// The tracer's library, beside the runner or in the image's folder for it.
const TRACER: &str = "liblaunches.so";
const TRACER_OF_IMAGE: &str = "/usr/local/lib/ncu-service";
/// Beginning of the names of CUPTI's library.
const CUPTI: &str = "libcupti.so";
/// Where CUDA's packages put it, relative to Python's packages: first what torch itself loads, since two copies in one
/// process would each see a part.
const CUPTI_OF_PACKAGES: [&str; 3] = ["nvidia/cu13/lib", "nvidia/cuda_cupti/lib", "torch/lib"];
/// Where CUDA's toolkit puts it.
const CUPTI_OF_TOOLKIT: [&str; 3] =
    ["/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/targets/x86_64-linux/lib"];
/// Entries of a folder that are looked at.
const MAX_ENTRIES: usize = 2000;

/// The variables that make a program note its launches in `folder`. Without a tracer it is only the folder: what needs no
/// tracer to know its launches (a stand-in for a GPU) notes them all the same.
pub fn variables(folder: &Path, python_packages: &[PathBuf]) -> Vec<(OsString, OsString)> {
    let mut variables = vec![("NCU_SERVICE_LAUNCHES_DIR".into(), folder.into())];
    if let (Some(tracer), Some(cupti)) = (tracer(), cupti(python_packages)) {
        variables.push(("CUDA_INJECTION64_PATH".into(), tracer.into()));
        // NVTX ranges then arrive at CUPTI as markers.
        variables.push(("NVTX_INJECTION64_PATH".into(), cupti.clone().into()));
        variables.push(("NCU_SERVICE_LAUNCHES_CUPTI".into(), cupti.into()));
    }
    variables
}

fn tracer() -> Option<PathBuf> {
    let own_folder = env::current_exe().ok().and_then(|path| Some(path.parent()?.to_owned()));
    let folders = own_folder.into_iter().chain([PathBuf::from(TRACER_OF_IMAGE)]);
    folders.map(|folder| folder.join(TRACER)).find(|path| path.is_file())
}

fn cupti(python_packages: &[PathBuf]) -> Option<PathBuf> {
    let of_packages = python_packages.iter().flat_map(|packages| CUPTI_OF_PACKAGES.map(|folder| packages.join(folder)));
    of_packages.chain(CUPTI_OF_TOOLKIT.map(PathBuf::from)).find_map(|folder| library(&folder, CUPTI))
}

/// The file of that beginning whose name is the shortest: the others are what it links to.
fn library(folder: &Path, beginning: &str) -> Option<PathBuf> {
    let entries = fs::read_dir(folder).ok()?.take(MAX_ENTRIES).filter_map(Result::ok);
    entries
        .filter(|entry| entry.file_name().as_encoded_bytes().starts_with(beginning.as_bytes()))
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .min_by_key(|path| (path.as_os_str().len(), path.clone()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn torchs_own_cupti_goes_before_others() {
        let root = tempfile::tempdir().unwrap();
        for folder in ["nvidia/cuda_cupti/lib", "nvidia/cu13/lib"] {
            fs::create_dir_all(root.path().join(folder)).unwrap();
        }
        let packages = [root.path().join("missing"), root.path().to_owned()];
        let old = root.path().join("nvidia/cuda_cupti/lib/libcupti.so.12");
        fs::write(&old, "").unwrap();
        assert_eq!(cupti(&packages), Some(old));
        let new = root.path().join("nvidia/cu13/lib/libcupti.so.13");
        fs::write(&new, "").unwrap();
        assert_eq!(cupti(&packages), Some(new));
    }
}
