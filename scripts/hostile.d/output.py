"""What a submission can put into /out, of which the collector takes files, and into /tmp, of which the runner reads."""

import re

from cases import Submission, source

# Runs in a process that outlives the evaluator, as long as the container lets it.
AFTER_NCU = '''
def for_ever(act):
    def again():
        while True:
            try:
                act()
            except OSError:
                pass
    daemon(again)
'''
NAMES = (
    "ncu-details.txt",
    "ncu-details.csv",
    "ncu-raw.csv",
    "digest.json",
    "digest.md",
    "report.html",
    "stdout.txt",
    "stderr.txt",
    "popcorn.log",
    "outcome.json",
    "launches.csv",
    "manifest.json",
    "benchmark.json",
    "command.json",
)

FORGED = '''
FORGED_OUTCOME = '{"steps": [{"name": "capture", "argv": ["forged"], "exit_code": 0, "timed_out": false, "seconds": 1.0}], "ncu_version": "forged", "landlock": "full", "oom_kills": 0}'
'''


def ours(seen, service):
    """Nothing that was forged is in the archive."""
    return (
        [
            f"{name} is forged"
            for name in seen.archive.namelist()
            if b"forged-by-it" in seen.archive.read(name) and name not in ("stdout.txt", "stderr.txt")
        ]
        if seen.archive
        else []
    )


def not_forged(seen, service):
    steps = [step["name"] for step in seen.manifest.get("steps", [])]
    return ours(seen, service) + ([] if steps == ["overview", "capture"] else [f"the manifest's steps are {steps}"])


def no_effect(seen, service):
    command = seen.read("command.json")
    wrong = [f"{word} is not in the command" for word in ('"--config-file"', '"off"', '"--rename-kernels"') if word not in command]
    return wrong + (
        [] if re.search(r"^  void add<float>\(float \*\) ", seen.read("ncu-details.txt"), re.M) else ["the kernel is not in the report"]
    )


def bounded_launches(seen, service):
    launches = seen.body["runs"][0]["launches"]
    wrong = [f"{len(launches)} kernels in the body"] if len(launches) > 10 else []
    wrong += [f"a share of {one['share']}" for one in launches if not 0 <= one["share"] <= 1]
    return wrong + [f"a name of {len(one['kernel'])} characters" for one in launches if len(one["kernel"]) > 401]


CASES = [
    Submission(
        "symlinks",
        "9",
        "makes every file that is collected a link to /etc/shadow, /proc/self/environ or a file of the host",
        "refused, or ours in their place; no byte of the host in an archive",
        source=source(
            "TARGETS = ('/etc/shadow', '/proc/self/environ', '/proc/1/environ', '../secret', 'SECRET_FILE')\n" + f"NAMES = {NAMES!r}",
            '''
for number, name in enumerate(NAMES):
    tried(name, os.symlink, TARGETS[number % len(TARGETS)], "/out/" + name)
''',
        ),
        look=not_forged,
    ),
    Submission(
        "report-is-a-symlink",
        "9, 12",
        "lets the report be a link to a file of the host, for as long as it lives",
        "failed: no usable report, or the real one",
        source=source(
            AFTER_NCU,
            "",
            '''
def swap():
    os.symlink("SECRET_FILE", "/out/profile/link")
    os.rename("/out/profile/link", "/out/profile/profile.ncu-rep")
if CAPTURING:
    for_ever(swap)
''',
        ),
        status="failed|succeeded",
        error="",
        look=ours,
    ),
    Submission(
        "folder-is-a-symlink",
        "10",
        "replaces /out/profile by a link to another folder with a forged report",
        "failed: no usable report",
        source=source(
            "",
            '''
if CAPTURING:
    os.makedirs("/out/elsewhere")
    os.rename("/out/profile", "/out/away")
    os.symlink("elsewhere", "/out/profile")
''',
        ),
        status="failed",
        error="no usable report: not a regular file",
    ),
    Submission(
        "out-replaced",
        "10",
        "renames, removes, unmounts and covers /out itself, and closes it to everybody",
        "it stays; the profile is there",
        source=source(
            "",
            '''
tried("rename", os.rename, "/out", "/tmp/out")
tried("remove", os.rmdir, "/out")
libc = ctypes.CDLL(None, use_errno=True)
def call(name, *arguments):
    if getattr(libc, name)(*arguments) < 0:
        raise OSError(ctypes.get_errno(), "")
tried("umount", call, "umount2", b"/out", 2)
tried("mount", call, "mount", b"tmpfs", b"/out", b"tmpfs", 0, None)
tried("symlink over it", os.symlink, "/etc", "/out")
''',
        ),
        tried={
            "rename": "EBUSY|EXDEV|EROFS|EACCES",
            "remove": "EBUSY|EROFS|EACCES|ENOTEMPTY",
            "umount": "EPERM",
            "mount": "EPERM",
            "symlink over it": "EEXIST|EROFS|EACCES",
        },
    ),
    Submission(
        "out-closed",
        "10",
        "closes /out and its folders in /tmp to everybody, itself included, when its kernel has run",
        "opened again; failed, or the profile is there",
        source=source(
            "",
            "",
            'for path in ("/out/profile", "/out", "/tmp/launches", "/tmp/home", "/tmp/scratch"):\n    tried(path, os.chmod, path, 0)',
        ),
        status="failed|succeeded",
        error="",
    ),
    Submission(
        "hard-link-to-input",
        "11",
        "links inputs, the evaluator and programs into /out, and its own files from /tmp",
        "refused: another mount",
        source=source(
            "",
            '''
for path in ("/in/submission.py", "/problems/sample/eval.py", "/usr/local/bin/ncu", "/etc/shadow", "/proc/self/environ", os.path.abspath("submission.py")):
    tried(path, os.link, path, "/out/linked")
''',
        ),
        tried={
            path: "EXDEV|EPERM|EACCES|EROFS"
            for path in ("/in/submission.py", "/problems/sample/eval.py", "/usr/local/bin/ncu", "/etc/shadow", "/proc/self/environ")
        },
    ),
    Submission(
        "report-with-two-names",
        "11",
        "gives the report a second name, for as long as it lives",
        "failed: no usable report, or the real one",
        source=source(AFTER_NCU, "", 'if CAPTURING:\n    for_ever(lambda: os.link("/out/profile/profile.ncu-rep", "/out/second"))'),
        status="failed|succeeded",
        error="",
        look=ours,
    ),
    Submission(
        "report-is-a-fifo",
        "11",
        "puts a FIFO where the report goes",
        "timed_out or failed; the collector never waits",
        source=source("", 'if CAPTURING:\n    os.mkfifo("/out/profile/profile.ncu-rep")'),
        status="timed_out|failed",
        error=".",
    ),
    Submission(
        "report-is-a-folder",
        "11",
        "puts a folder where the report goes",
        "failed",
        source=source("", 'if CAPTURING:\n    os.mkdir("/out/profile/profile.ncu-rep")'),
        status="failed",
        error=".",
    ),
    Submission(
        "odd-files",
        "11",
        "makes FIFOs, sockets and folders at the names of collected files, and device nodes",
        "ours in their place; no device",
        source=source(
            f"NAMES = {NAMES!r}",
            '''
held = []
def bind(path):
    held.append(socket.socket(socket.AF_UNIX))
    held[-1].bind(path)
for number, name in enumerate(NAMES):
    try:
        (os.mkfifo, bind, os.makedirs)[number % 3]("/out/" + name)
    except OSError as error:
        say(name, error)
for name, kind in {"block": stat.S_IFBLK, "character": stat.S_IFCHR}.items():
    tried(name, os.mknod, "/out/" + name, kind | 0o666, os.makedev(8, 0))
''',
        ),
        tried={"block": "EPERM", "character": "EPERM"},
        look=not_forged,
    ),
    Submission(
        "names",
        "8",
        "makes files whose names are not UTF-8, hold newlines, `..\\\\`, escapes, 255 bytes, `:` and `|`, or differ in case",
        "none is in the archive; the clean-up ends",
        source=source(
            "",
            r'''
for name in (b"\xff\xfe", b"a\nb", b"..\\..\\evil", b"\x1b[2J", b"n" * 255, b"CON", b"a:b|c?*", b"Report", b"report", b"ncu-details.txt ", b"NCU-DETAILS.TXT", b"-rf", b"$(id)", b"\xe2\x80\xaetxt.exe", b" ", b"..."):
    open(b"/out/" + name, "wb").close()
    os.mkdir(b"/out/profile/" + name) if CAPTURING else None
''',
        ),
    ),
    Submission(
        "second-profile",
        "8, 12",
        "adds entries of the names that clients unpack: `evil.ncu-rep`, `x/ncu-details.txt`, `../ncu-details.csv`",
        "exactly one entry of each basename",
        source=source(
            "",
            '''
os.makedirs("/out/x", exist_ok=True)
for name in ("evil.ncu-rep", "x/ncu-details.txt", "x/ncu-details.csv", "profile.zip", "profile/second.ncu-rep" if CAPTURING else "y"):
    open("/out/" + name, "w").write("forged-by-it")
''',
        ),
        look=ours,
    ),
    Submission(
        "planted-results",
        "12",
        "writes its own manifest.json, benchmark.json, command.json, outcome.json, launches.csv, exports and logs",
        "ours win",
        source=source(f"NAMES = {NAMES!r}", 'for name in NAMES:\n    open("/out/" + name, "w").write("forged-by-it")'),
        look=not_forged,
    ),
    Submission(
        "vandal",
        "12",
        "leaves a daemon that renames forged outcomes and logs over ours as fast as it can",
        "it is dead before ours are written",
        source=source(
            AFTER_NCU + FORGED + f"NAMES = {NAMES!r}",
            "",
            '''
def forge():
    for name in NAMES:
        open("/out/.new", "w").write(FORGED_OUTCOME + "forged-by-it")
        os.rename("/out/.new", "/out/" + name)
for_ever(forge)
''',
        ),
        look=not_forged,
    ),
    Submission(
        "inotify",
        "12",
        "watches /out by inotify and replaces whatever appears there at once",
        "it is dead before ours are written",
        source=source(
            AFTER_NCU + FORGED,
            "",
            '''
libc = ctypes.CDLL(None, use_errno=True)
def replace():
    watch = libc.inotify_init1(0)
    tried("watch", lambda: libc.inotify_add_watch(watch, b"/out", 0x3C2) > 0)
    while True:
        event = os.read(watch, 4096)
        name = event[16:].split(b"\\0")[0]
        if name != b".new":
            open("/out/.new", "w").write(FORGED_OUTCOME + "forged-by-it")
            os.rename(b"/out/.new", b"/out/" + name)
daemon(replace)
time.sleep(0.2)
''',
        ),
        look=not_forged,
    ),
    Submission(
        "report-flips",
        "10, 12",
        "a daemon flips the report between the real one, a link and a folder while ncu ends",
        "failed, or a regular file of its own; no byte of the host",
        source=source(
            AFTER_NCU,
            "",
            '''
def flip():
    os.rename("/out/profile/profile.ncu-rep", "/out/profile/kept")
    os.symlink("/etc/shadow", "/out/profile/profile.ncu-rep")
    os.unlink("/out/profile/profile.ncu-rep")
    os.mkdir("/out/profile/profile.ncu-rep")
    os.rmdir("/out/profile/profile.ncu-rep")
    os.rename("/out/profile/kept", "/out/profile/profile.ncu-rep")
if CAPTURING:
    for_ever(flip)
''',
        ),
        status="failed|succeeded",
        error="",
    ),
    Submission(
        "unreadable-report",
        "9",
        "takes all rights from the report",
        "the collector's user reads it, or failed",
        source=source(AFTER_NCU, "", 'if CAPTURING:\n    for_ever(lambda: os.chmod("/out/profile/profile.ncu-rep", 0))'),
        status="succeeded|failed",
        error="",
    ),
    Submission(
        "immutable",
        "7",
        "marks files immutable and append-only, and sets extended attributes and access lists",
        "refused, or without effect: the clean-up ends",
        source=source(
            "",
            '''
import fcntl, struct
file = open("/out/kept", "w")
for name, flag in {"immutable": 0x10, "append-only": 0x20}.items():
    tried(name, fcntl.ioctl, file, 0x40086602, struct.pack("l", flag))
for name in ("user.x", "trusted.x", "security.capability", "system.posix_acl_access"):
    tried(name, os.setxattr, "/out/kept", name, b"x" * 20)
''',
        ),
        tried={
            "immutable": "EPERM|ENOTTY|EOPNOTSUPP|EACCES",
            "append-only": "EPERM|ENOTTY|EOPNOTSUPP|EACCES",
            "trusted.x": "EPERM|EOPNOTSUPP",
            "security.capability": "EPERM|EINVAL|EOPNOTSUPP",
        },
    ),
    Submission(
        "settings-of-ncu",
        "14",
        "writes config.ncu-cfg, renames, rules and sections into its folder, HOME and /tmp",
        "no effect on the capture",
        source=source(
            "",
            '''
for folder in (".", os.environ["HOME"], "/tmp", os.environ["HOME"] + "/Documents/NVIDIA Nsight Compute/2025.3.1/Sections", "/tmp/home"):
    try:
        os.makedirs(folder, exist_ok=True)
        for name in ("config.ncu-cfg", "ncu-kernel-renames.yaml", "x.section", "rule.py", ".bashrc", ".gdbinit"):
            open(folder + "/" + name, "w").write("forged-by-it")
    except OSError as error:
        say(error)
''',
        ),
        look=no_effect,
    ),
    Submission(
        "forged-overview",
        "23",
        "writes files of the launch tracer: forged counts, garbage, links, a FIFO, huge numbers, thousands of files",
        "the body stays within its bounds; the profile is there",
        source=source(
            "",
            "",
            '''
folder = os.environ.get("NCU_SERVICE_LAUNCHES_DIR")
if folder:
    huge = "9" * 400
    for number, text in enumerate((
        "launches 2\\nprocess 1\\nlost 0\\nrange 1 1\\nkernel 18446744073709551615 18446744073709551615 18446744073709551615 1 1 1 1 1 1 _Z1av\\nother 0 0 0\\nrun 0 18446744073709551615\\nend\\n",
        f"launches 2\\nprocess 1\\nlost 0\\nrange 1 1\\nkernel {huge} 0 {huge} 1 1 1 1 1 1 b\\nend\\n",
        "launches 2\\nprocess 2\\nlost -1\\nrange nan inf\\n", "launches 3\\n", "\\0" * 100, "launches 2\\n" + "kernel 1 0 1 1 1 1 1 1 1 %1B%5B2J%0A=cmd\\n" * 5000 + "end\\n", "x" * (9 << 20),
    )):
        open(f"{folder}/0{number}", "w").write(text)
    os.symlink("/etc/shadow", folder + "/00link")
    os.mkfifo(folder + "/00fifo")
    for number in range(3000):
        open(f"{folder}/z{number}", "w").close()
''',
        ),
        status="succeeded|failed",
        error="",
        look=bounded_launches,
    ),
    Submission(
        "launches-replaced",
        "12",
        "replaces the folder of the launch tracer by a link to /",
        "the profile is there",
        source=source(
            "",
            "",
            '''
folder = os.environ.get("NCU_SERVICE_LAUNCHES_DIR")
if folder:
    os.rename(folder, folder + "-away")
    os.symlink("/etc", folder)
''',
        ),
    ),
]
