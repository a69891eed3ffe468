"""How each of the runs begins: a folder for its logs, and the built programs."""

import json
import os
import subprocess
import tempfile

from processes import run, say


def new_folder(path, prefix):
    """The folder that was named, which must be new, or one in /tmp."""
    if path:
        os.makedirs(path)
    else:
        path = tempfile.mkdtemp(prefix=prefix, dir="/tmp")
    # Postgres, as another user, must pass through it.
    os.chmod(path, 0o755)
    return os.path.abspath(path)


def build(root):
    """The folder of the built programs; the image is built, too."""
    say("building")
    environment = {**os.environ, "SQLX_OFFLINE": "true"}
    subprocess.run(["cargo", "build", "--quiet", "--locked", "--bins", "-p", "ncu-api", "-p", "jobs"], cwd=root, env=environment, check=True)
    if "NCU_SERVICE_TEST_IMAGE" not in os.environ:
        subprocess.run([root / "scripts/build-images", "dev"], check=True)
    metadata = json.loads(run("cargo", "metadata", "--format-version", "1", "--no-deps", "--offline", cwd=root))
    return f"{metadata['target_directory']}/debug"
