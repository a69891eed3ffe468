//! A capture sees the GPU, and an export does not.

use super::{Bench, LONG};
use jobs::sandbox::{ContainerSpec, Ended, Inputs};
use tokio_util::sync::CancellationToken;

impl Bench {
    async fn export(&self, command: &[&str]) -> Ended {
        let (input, report) = (self.path("in"), self.path("problems"));
        let spec = ContainerSpec {
            labels: self.labels,
            inputs: Inputs::Export { input: &input, report: &report },
            output: &self.output,
            command: command.iter().map(|&word| word.to_owned()).collect(),
            limit: LONG,
        };
        self.sandbox.run(&spec, &CancellationToken::new()).await.unwrap()
    }
}

#[tokio::test]
async fn device_nodes_and_the_drivers_folder_reach_a_capture_only() {
    let driver = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::create_dir(driver.path().join("lib64")).unwrap();
    let driver = driver.path().to_str().unwrap();
    // Any device node that the engine does not give to every container.
    let it = Bench::with(&[("NCU_SERVICE_GPUS", &format!("nodes:/dev/kmsg;driver={driver}"))]).await;
    let look = format!("ls -d /dev/kmsg {driver}/lib64 2>/dev/null; echo ${{LD_LIBRARY_PATH-unset}}");
    let capture = it.run(&["sh", "-c", &look]).await;
    assert_eq!(capture.log_tail, format!("/dev/kmsg\n{driver}/lib64\n{driver}/lib64:{driver}/lib\n"));
    assert_eq!(it.export(&["sh", "-c", &look]).await.log_tail, "unset\n");
}

#[tokio::test]
#[ignore = "needs an NVIDIA GPU, named by NCU_SERVICE_GPUS"]
async fn the_gpu_reaches_a_capture_only() {
    let gpus = std::env::var("NCU_SERVICE_GPUS").unwrap();
    let it = Bench::with(&[("NCU_SERVICE_GPUS", &gpus)]).await;
    let look = ["sh", "-c", "ls /dev | grep -c '^nvidia[0-9]'"];
    assert_ne!(it.run(&look).await.log_tail, "0\n");
    assert_eq!(it.export(&look).await.log_tail, "0\n");
}
