//! Containers of a real engine, made from the image that `NCU_SERVICE_TEST_IMAGE` names.

mod gpu;
mod lifecycle;
mod restrictions;
mod system_calls;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use jobs::collect::OutputDir;
use jobs::config::Reader;
use jobs::ids::JobId;
use jobs::sandbox::{ContainerSpec, Ended, How, Inputs, Labels, Sandbox, SandboxConfig};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

/// Long enough for a slow host; a test that needs it has failed.
const LONG: Duration = Duration::from_mins(2);

/// A sandbox with a scope of its own, and the folders of one capture.
struct Bench {
    sandbox: Sandbox,
    folder: TempDir,
    output: OutputDir,
    labels: Labels,
}

impl Bench {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    /// A bench whose sandbox has these settings.
    async fn with(settings: &[(&'static str, &str)]) -> Self {
        let closed = fs::Permissions::from_mode(0o700);
        let folder = tempfile::Builder::new().permissions(closed).tempdir().unwrap();
        for name in ["in", "problems"] {
            let path = folder.path().join(name);
            fs::create_dir(&path).unwrap();
            // Open to all, so that only the mount can be what keeps a container from writing.
            fs::write(path.join("file"), "original").unwrap();
            fs::set_permissions(path.join("file"), fs::Permissions::from_mode(0o666)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        }
        let sandbox = Sandbox::connect(config(settings)).await.unwrap();
        let user = sandbox.config().user;
        let output = OutputDir::create(&folder.path().join("out"), (user.uid, user.gid)).unwrap();
        let labels = Labels { job: JobId::random(), benchmark: 3, attempt: 1, token: Uuid::new_v4(), adoption: 0 };
        Self { sandbox, folder, output, labels }
    }

    fn path(&self, relative: &str) -> PathBuf {
        self.folder.path().join(relative)
    }

    /// Runs one capture container and asserts that nothing is left of it.
    async fn try_run(&self, command: &[&str], limit: Duration, cancel: &CancellationToken) -> jobs::Result<Ended> {
        let (input, problems) = (self.path("in"), self.path("problems"));
        let spec = ContainerSpec {
            labels: self.labels,
            inputs: Inputs::Capture { input: &input, problems: &problems },
            output: &self.output,
            command: command.iter().map(|&word| word.to_owned()).collect(),
            limit,
        };
        let ended = self.sandbox.run(&spec, cancel).await;
        assert_eq!(self.sandbox.leftovers().await.unwrap(), [], "a container is left");
        ended
    }

    async fn run(&self, command: &[&str]) -> Ended {
        self.try_run(command, LONG, &CancellationToken::new()).await.unwrap()
    }

    /// Runs a Python program, asserts that it ended well, and returns what it printed.
    async fn python(&self, program: &str) -> String {
        let ended = self.run(&["python3", "-c", program]).await;
        assert_eq!(ended.how, How::Exited { code: 0, oom_killed: false }, "{}", ended.log_tail);
        ended.log_tail
    }
}

/// The sandbox's settings in a test: no GPU unless `settings` say otherwise, and a scope of its own.
fn config(settings: &[(&'static str, &str)]) -> SandboxConfig {
    let image = crate::support::image();
    let ours = [("NCU_SERVICE_WORKER_IMAGE", &*image), ("NCU_SERVICE_GPUS", "none")];
    // A later pair wins.
    let pairs = ours.into_iter().chain(settings.iter().copied());
    let mut config = SandboxConfig::read(&mut Reader::from_pairs(pairs)).unwrap();
    config.scope = format!("test-{}", Uuid::new_v4());
    config
}
