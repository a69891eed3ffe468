//! The room as a whole, with a driver's folder, a kernel's log and an `nvidia-smi` of the test's own.

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;

use super::*;

const ADDRESS: &str = "0000:19:00.0";

/// What the fake `nvidia-smi` answers to either question; its arguments are ignored but for the question.
fn smi(memory: &str, processes: &str) -> String {
    format!("case $1 in --query-gpu*) printf '{memory}';; *) printf '{processes}';; esac")
}

struct Bench {
    folder: tempfile::TempDir,
    gpus: Gpus,
}

impl Bench {
    fn new(smi: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        fs::create_dir_all(path("driver/gpus").join(ADDRESS)).unwrap();
        File::create(path("kmsg")).unwrap();
        let program = path("nvidia-smi");
        fs::write(&program, format!("#!/bin/sh\n{smi}\n")).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let program = program.to_str().unwrap().to_owned();
        let config = GpuConfig { lock_dir: path("locks"), nvidia_smi: program.clone(), max_used_bytes: 1 << 30 };
        let gpus = Gpus {
            config,
            access: GpuAccess::All,
            driver: path("driver"),
            smi: NvidiaSmi::new(&program).with_deadline(Duration::from_secs(2)),
            kernel_log: Mutex::new(KernelLog::open(&path("kmsg"))),
            patience: Duration::ZERO,
            told_of_missing_smi: AtomicBool::new(false),
        };
        Self { folder, gpus }
    }

    async fn trouble(&self) -> String {
        self.gpus.settle().await.unwrap_err().to_string()
    }

    fn reason(&self) -> Option<String> {
        self.gpus.quarantine().unwrap().map(|quarantine| quarantine.reason)
    }
}

#[tokio::test]
async fn a_manifest_can_name_the_gpu_and_none_that_is_not_there() {
    let line = "00000000:19:00.0, NVIDIA H200, GPU-1, 580.1, 96, 1980, 3201, 700.00, Enabled, Disabled";
    let mut it = Bench::new(&format!("printf '{line}\\n00000000:2A:00.0, NVIDIA H200, GPU-2\\n'"));
    let found = it.gpus.identities().await;
    assert_eq!(found.iter().map(|gpu| gpu.uuid.as_deref()).collect::<Vec<_>>(), [Some("GPU-1")]);
    it.gpus.access = GpuAccess::None;
    assert_eq!(it.gpus.identities().await, []);
    assert_eq!(Bench::new("exit 9").gpus.identities().await, []);
}

#[tokio::test]
async fn a_gpu_that_is_free_is_fit() {
    let it = Bench::new(&smi("00000000:19:00.0, 4\\n", ""));
    it.gpus.settle().await.unwrap();
    assert_eq!(it.gpus.look().await, Ok(Some("free")));
    assert_eq!(it.reason(), None);
}

#[tokio::test]
async fn somebody_elses_process_or_memory_makes_it_wait_and_then_fail_without_quarantine() {
    let it = Bench::new(&smi("00000000:19:00.0, 612\\n", "00000000:19:00.0, 418\\n"));
    assert_eq!(it.trouble().await, "GPU: not free: process 418 computes on GPU 0000:19:00.0");
    let it = Bench::new(&smi("00000000:19:00.0, 2048\\n", ""));
    assert_eq!(it.trouble().await, "GPU: not free: 2048 MiB are in use on GPU 0000:19:00.0");
    assert_eq!(it.reason(), None);
}

#[tokio::test]
async fn another_gpus_guests_do_not_matter() {
    let it = Bench::new(&smi("00000000:19:00.0, 4\\n00000000:AB:00.0, 9999\\n", "00000000:AB:00.0, 418\\n"));
    it.gpus.settle().await.unwrap();
}

#[tokio::test]
async fn a_gpu_that_is_waited_for_is_used_when_it_is_free() {
    let mut it = Bench::new("");
    it.gpus.patience = Duration::from_mins(1);
    let freed = it.folder.path().join("freed");
    let program = it.folder.path().join("nvidia-smi");
    // The first question finds a guest, and lets it go.
    let script = format!(
        "#!/bin/sh\ncase $1 in --query-gpu*) echo '0000:19:00.0, 0';; *) [ -e {0} ] || echo '0000:19:00.0, 7'; : >{0};; esac\n",
        freed.display()
    );
    fs::write(program, script).unwrap();
    it.gpus.settle().await.unwrap();
}

#[tokio::test]
async fn an_nvidia_smi_that_hangs_puts_the_gpu_into_quarantine() {
    let it = Bench::new("exec sleep 600");
    assert_eq!(it.trouble().await, "GPU: in quarantine: nvidia-smi did not answer within 2 s");
    assert!(it.reason().unwrap().ends_with("Z nvidia-smi did not answer within 2 s"), "{:?}", it.reason());
}

#[tokio::test]
async fn a_lost_gpu_is_put_into_quarantine_at_once() {
    let mut it =
        Bench::new("echo 'Unable to determine the device handle for GPU0: 0000:19:00.0: GPU is lost.'; exit 15");
    it.gpus.patience = Duration::from_hours(1);
    assert!(it.trouble().await.contains("GPU is lost"));
    assert!(it.reason().unwrap().contains("GPU is lost"));
}

#[tokio::test]
async fn trouble_that_does_not_pass_is_an_illness() {
    let it = Bench::new("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18");
    assert!(it.trouble().await.contains("in quarantine: nvidia-smi: Failed to initialize NVML"));
    let it = Bench::new(&smi("00000000:AB:00.0, 4\\n", ""));
    assert!(it.trouble().await.contains("nvidia-smi does not list GPU 0000:19:00.0"));
}

#[tokio::test]
async fn an_xid_of_the_hardware_is_an_illness_and_one_of_a_submission_is_not() {
    let it = Bench::new(&smi("00000000:19:00.0, 4\\n", ""));
    let log = |line: &str| {
        let mut file = File::options().append(true).open(it.folder.path().join("kmsg")).unwrap();
        writeln!(file, "3,1,1,-;NVRM: Xid (PCI:{line}").unwrap();
    };
    log("0000:19:00): 31, pid=7, name=python3, MMU Fault");
    log("0000:ab:00): 79, GPU has fallen off the bus.");
    it.gpus.settle().await.unwrap();
    log("0000:19:00): 48, pid=7, DBE (double bit error)");
    assert_eq!(it.trouble().await, "GPU: in quarantine: Xid 48, pid=7, DBE (double bit error)");
}

#[tokio::test]
async fn a_gpu_that_is_lost_in_mid_capture_is_told_from_a_submission_that_fails() {
    // Well, though another worker captures on it by now: the submission failed by itself.
    let mut it = Bench::new(&smi("00000000:19:00.0, 9999\\n", "00000000:19:00.0, 418\\n"));
    it.gpus.patience = Duration::from_hours(1);
    it.gpus.check().await.unwrap();
    assert_eq!(it.reason(), None);
    // No nvidia-smi says nothing, either way.
    it.gpus.smi = NvidiaSmi::new("/nowhere/nvidia-smi");
    it.gpus.check().await.unwrap();

    let log = it.folder.path().join("kmsg");
    let report = |line: &str| fs::write(&log, format!("3,1,1,-;NVRM: Xid (PCI:0000:19:00): {line}\n")).unwrap();
    report("79, GPU has fallen off the bus.");
    assert_eq!(
        it.gpus.check().await.unwrap_err().to_string(),
        "GPU: in quarantine: Xid 79, GPU has fallen off the bus."
    );
    assert!(it.reason().unwrap().contains("Xid 79"));

    let it = Bench::new("echo 'Unable to determine the device handle for GPU0: 0000:19:00.0: GPU is lost.'; exit 15");
    assert!(it.gpus.check().await.unwrap_err().to_string().contains("GPU is lost"));
    let it = Bench::new("echo 'Failed to initialize NVML: Driver/library version mismatch'; exit 18");
    assert!(it.gpus.check().await.unwrap_err().to_string().contains("Failed to initialize NVML"));
}

#[tokio::test]
async fn an_xid_that_a_submission_causes_leaves_its_failure_its_own() {
    let it = Bench::new(&smi("00000000:19:00.0, 4\\n", ""));
    let xid = "3,1,1,-;NVRM: Xid (PCI:0000:19:00): 31, pid=7, name=python3, MMU Fault\n";
    fs::write(it.folder.path().join("kmsg"), xid).unwrap();
    it.gpus.check().await.unwrap();
    assert_eq!(it.reason(), None);
}

#[tokio::test]
async fn a_quarantine_lasts_until_it_is_lifted() {
    let it = Bench::new(&smi("00000000:19:00.0, 4\\n", ""));
    it.gpus.begin_quarantine("a person's look").unwrap();
    let lifted = it.gpus.lift_quarantine().unwrap();
    assert_eq!(lifted.iter().map(|quarantine| quarantine.gpu.as_str()).collect::<Vec<_>>(), [ADDRESS]);
    assert_eq!((it.reason(), it.gpus.lift_quarantine().unwrap().len()), (None, 0));
}

#[tokio::test]
async fn without_nvidia_smi_a_gpu_is_taken_as_it_is() {
    let mut it = Bench::new("");
    it.gpus.smi = NvidiaSmi::new("/nowhere/nvidia-smi");
    it.gpus.settle().await.unwrap();
}

#[tokio::test]
async fn a_turn_that_waits_ends_with_its_attempt_and_leaves_the_gpu_to_the_next() {
    let it = Bench::new("");
    let (go_on, stop) = (CancellationToken::new(), CancellationToken::new());
    let held = it.gpus.turn(&go_on).await.unwrap().unwrap();
    let waiting = it.gpus.turn(&stop);
    let (stopped, ()) = tokio::join!(waiting, async { stop.cancel() });
    assert!(stopped.unwrap().is_none());
    drop(held);
    assert!(it.gpus.turn(&go_on).await.unwrap().is_some());
}

#[tokio::test]
async fn the_next_turn_learns_of_a_container_that_was_not_seen_to_its_end() {
    let it = Bench::new("");
    let go_on = CancellationToken::new();
    let mut turn = it.gpus.turn(&go_on).await.unwrap().unwrap();
    turn.note("ncu-1-0-1-capture").unwrap();
    drop(turn);
    let mut turn = it.gpus.turn(&go_on).await.unwrap().unwrap();
    assert_eq!(turn.left_behind().unwrap(), ["ncu-1-0-1-capture"]);
    turn.note("x").unwrap();
    assert_eq!(turn.left_behind().unwrap(), ["x"], "a shorter name leaves nothing of a longer one");
    turn.finish().unwrap();
    assert_eq!(it.gpus.turn(&go_on).await.unwrap().unwrap().left_behind().unwrap(), [""; 0]);
}
