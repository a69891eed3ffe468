"""Makes the checkout that the service reads on a GPU host: reference-kernels, the sample, and tasks with other shapes.

    problems.py REFERENCE-PROBLEMS SAMPLE-PROBLEMS TARGET
"""

import json
import pathlib
import re
import shutil
import sys

# leaderboard: (its model, its shapes or how many of the model's, benchmark_timeout or None)
VARIANTS = {
    # One job of four shapes.
    "cholesky_four": ("linalg/cholesky_py", 4, None),
    # Diagonal input is what the Triton example of eigh is made for, and only its tests have it.
    "eigh_diagonal": ("linalg/eigh_py", ['{"batch": 16, "n": 512, "cond": 1, "seed": 75343, "case": "diagonal"}'], None),
    # An endless kernel need not run for the minutes that the task allows.
    "qr_brief": ("linalg/qr_v2", 1, 30),
}


def variant(text, shapes, timeout):
    """A task.yml with other benchmarks."""
    head, benchmarks = text.split("\nbenchmarks:\n")
    own = re.findall(r"^  - (\{.*\})$", benchmarks, re.M)
    after = benchmarks[benchmarks.rindex(own[-1]) + len(own[-1]) :]
    chosen = own[:shapes] if isinstance(shapes, int) else shapes
    text = head + "\nbenchmarks:\n" + "\n".join(f"  - {shape}" for shape in chosen) + after
    return text if timeout is None else re.sub(r"(?m)^benchmark_timeout:.*", f"benchmark_timeout: {timeout}", text)


def spec(task, index):
    """The line of a benchmark, as evaluators read it."""
    benchmarks = pathlib.Path(task).read_text().split("\nbenchmarks:\n")[1]
    shape = json.loads(re.findall(r"^  - (\{.*\})$", benchmarks, re.M)[int(index)])
    return "; ".join(f"{key}: {value}" for key, value in shape.items())


def main():
    reference, sample, target = map(pathlib.Path, sys.argv[1:])
    shutil.copytree(reference, target)
    shutil.copytree(sample, target, dirs_exist_ok=True)
    entries = []
    for name, (model, shapes, timeout) in VARIANTS.items():
        folder = target / "linalg" / name
        shutil.copytree(target / model, folder)
        task = folder / "task.yml"
        task.write_text(variant(task.read_text(), shapes, timeout))
        entries.append(f'  - directory: linalg/{name}\n    name: {name}\n    deadline: ""\n    gpus:\n      - any\n')
    (target / "gpu_e2e.yaml").write_text('name: GPU run\n\ndeadline: ""\n\ndescription: ""\n\nproblems:\n' + "".join(entries))


if __name__ == "__main__":
    main()
