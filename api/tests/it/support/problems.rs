//! A small problems folder in reference-kernels' layout.

use std::fs;
use std::path::Path;

pub fn write(root: &Path) {
    let files = [
        (
            "linalg.yaml",
            "name: Linear algebra\nproblems:\n  - {directory: linalg/qr_v2, name: qr_v2}\n  \
             - {directory: linalg/sort_py, name: sort}\n  - {directory: linalg/gone, name: gone}\n",
        ),
        (
            "linalg/eval.py",
            "from torch.cuda import nvtx\nif mode == \"profile\":\n    with nvtx.range(\"custom_kernel\"):\n        run()\n",
        ),
        ("linalg/other_eval.py", "if mode == \"test\":\n    run()\n"),
        ("linalg/qr_v2/task.yml", &task("eval.py")),
        ("linalg/sort_py/task.yml", &task("other_eval.py")),
    ];
    for (path, content) in files {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}

/// The keys of a shape are in no alphabetical order, on purpose.
fn task(evaluator: &str) -> String {
    format!(
        "files:\n  - {{\"name\": \"submission.py\", \"source\": \"@SUBMISSION@\"}}\n  \
         - {{\"name\": \"eval.py\", \"source\": \"../{evaluator}\"}}\nlang: \"py\"\nconfig:\n  main: \"eval.py\"\n\
         benchmarks:\n  - {{\"n\": 32, \"batch\": 20, \"cond\": 1}}\n  - {{\"n\": 64, \"batch\": 40, \"cond\": 1}}\n  \
         - {{\"n\": 512, \"batch\": 640, \"cond\": 2}}\n"
    )
}
