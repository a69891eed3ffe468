//! Random hostile trees, with a writer that goes on while they are read, and what holds for every one of them.
//!
//! `COLLECT_SEEDS=first..last` runs other trees than the usual ones; a failure names its seed, and the same seed makes the
//! same tree.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, Permissions};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use rustix::fs::{
    CWD, FileType, Mode, OFlags, RenameFlags, chmod, fstat, mkfifoat, mknodat, openat, openat2, renameat_with,
};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::output::RESOLVE;
use super::*;
use crate::artifacts::archive::{self, Content, Entry};
use crate::fuzzing::replay::Random;
use crate::ids::JobId;

/// What a caller asks for, as the worker does.
const WANTED: [&str; 6] =
    ["outcome.json", "stdout.txt", "launches.csv", "ncu-details.csv", "profile/profile.ncu-rep", "profile"];
/// What the writer puts into its files, and nobody else.
const INSIDE: u8 = b'i';
/// What stands in the files outside.
const SECRET: &[u8] = b"SECRET of the host";
/// Most that is read of a file, in bytes.
const MAX_BYTES: u64 = 3000;
const LIMITS: UsageLimits = UsageLimits { entries: 200, depth: 12, bytes: 200_000, free_bytes: 0 };
/// Longest time that one tree may take: a machine in trouble is that slow, and a reader that blocks takes for ever.
const PATIENCE: Duration = Duration::from_secs(200);
/// A user like those of containers.
const NOBODY: u32 = 65534;

/// Who writes the folder and who reads it.
#[derive(Debug, Clone, Copy)]
struct Users {
    writer: Option<u32>,
    reader: Option<u32>,
}

/// From here on this thread is that user. Only threads of root can become another.
fn become_user(user: Option<u32>) {
    if let Some(id) = user {
        let (uid, gid) = (Uid::from_raw(id), Gid::from_raw(id));
        set_thread_groups(&[]).unwrap();
        set_thread_res_gid(gid, gid, gid).unwrap();
        set_thread_res_uid(uid, uid, uid).unwrap();
    }
}

/// A hostile name, or one that is asked for.
fn name(random: &mut Random) -> Vec<u8> {
    match random.below(12) {
        0 => vec![b'n'; 255],
        1 => b"\xff\xfe\x80".to_vec(),
        2 => b"new\nline\x1b[31m".to_vec(),
        3 => b"..\\..\\evil".to_vec(),
        4 => b"STDOUT.TXT".to_vec(),
        5 => b"moved-1".to_vec(),
        6 => b"-rf".to_vec(),
        7 => "stdout.tхt".as_bytes().to_vec(),
        8 => format!("f{}", random.below(1000)).into_bytes(),
        _ => random.one_of(&WANTED).as_bytes().to_vec(),
    }
}

/// What a writer in a container does: like there, it never gets out of the folder, not by its own links either, and like
/// there it is the only one.
struct Writer<'a> {
    random: Random,
    out: BorrowedFd<'a>,
    /// Where its links lead.
    outside: &'a Path,
}

/// The path of an entry of the folder, which leads through no link; `None` where there is no such place.
fn within(out: BorrowedFd<'_>, relative: &[u8]) -> Option<(OwnedFd, PathBuf)> {
    let relative = Path::new(OsStr::from_bytes(relative));
    let folder = relative.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let folder = openat2(out, folder, flags, Mode::empty(), RESOLVE).ok()?;
    let path = Path::new("/proc/self/fd").join(folder.as_raw_fd().to_string()).join(relative.file_name()?);
    Some((folder, path))
}

impl Writer<'_> {
    /// Appends to a file, made if it is not there.
    fn append(path: &Path, bytes: usize) -> io::Result<()> {
        let flags = (OFlags::NOFOLLOW | OFlags::NONBLOCK).bits().cast_signed();
        let mut file = File::options().append(true).create(true).custom_flags(flags).open(path)?;
        if file.metadata()?.nlink() > 1 {
            // A writer that is root has links to the outside.
            return Ok(());
        }
        file.write_all(&vec![INSIDE; bytes])
    }

    /// Makes one hostile entry somewhere; what cannot be made there is not made.
    fn plant(&mut self) {
        let folder = *self.random.one_of(&["", "", "profile/", "d/", "profile/d/"]);
        let place = [folder.as_bytes(), &name(&mut self.random)].concat();
        let Some((_folder, path)) = within(self.out, &place) else { return };
        let _ = match self.random.below(14) {
            0..=2 => Self::append(&path, self.random.below(5000)),
            3 => fs::create_dir(&path),
            4 | 5 => {
                let outside = self.outside.to_str().unwrap();
                let file = format!("{outside}/profile.ncu-rep");
                let here = ["../outside/stdout.txt", ".", "..", "stdout.txt"];
                let there = [&file, outside, "/proc/self/environ", "/etc/shadow"];
                symlink(self.random.one_of(&[here, there].concat()), &path)
            }
            // Only a writer that is root has a way to the outside at all: a container has none.
            6 => fs::hard_link(self.outside.join("stdout.txt"), &path),
            7 => match within(self.out, self.random.one_of(&WANTED).as_bytes()) {
                Some((_folder, other)) => fs::hard_link(other, &path),
                None => Ok(()),
            },
            8 => mkfifoat(CWD, &path, Mode::RWXU).map_err(Into::into),
            9 => UnixListener::bind(&path).map(drop),
            10 => File::create_new(&path).and_then(|file| file.set_len(1 << 40)),
            11 => {
                fs::create_dir(&path).and_then(|()| fs::create_dir_all(path.join("d/".repeat(self.random.below(200)))))
            }
            12 => {
                for index in 0..self.random.below(150) {
                    let _ = Self::append(&path.with_file_name(format!("many{index}")), 0);
                }
                let null = rustix::fs::makedev(1, 3);
                mknodat(CWD, &path, FileType::CharacterDevice, Mode::RUSR, null).map_err(Into::into)
            }
            _ => self.close(&path),
        };
    }

    /// Gives an entry, and not what it leads to, an odd mode.
    fn close(&mut self, path: &Path) -> io::Result<()> {
        let mode = *self.random.one_of(&[0o000, 0o100, 0o4755, 0o1777]);
        let handle = openat(CWD, path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        // The hard links of a writer that is root lead to the outside too.
        if fstat(&handle)?.st_nlink > 1 && !path.is_dir() {
            return Ok(());
        }
        Ok(chmod(format!("/proc/self/fd/{}", handle.as_raw_fd()), Mode::from_raw_mode(mode))?)
    }

    /// Goes on changing the folder until it is told to stop.
    fn race(&mut self, stop: &AtomicBool) {
        let out = self.out;
        let [(_a, to_outside), (_b, real), (_c, profile)] =
            ["to-outside", "real", "profile"].map(|name| within(out, name.as_bytes()).unwrap());
        let _ = symlink(self.outside, &to_outside);
        let _ = fs::create_dir(&real).and_then(|()| Self::append(&real.join("profile.ncu-rep"), 100));
        let exchange = |one: &Path, other: &Path| {
            let _ = renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE);
        };
        // Not without end: what it makes must be removed again.
        for _ in 0..5_000 {
            if stop.load(Ordering::Relaxed) {
                return;
            }
            let mut wanted = || within(out, self.random.one_of(&WANTED).as_bytes());
            let (Some((_one, wanted)), Some((_other, other))) = (wanted(), wanted()) else {
                self.plant();
                continue;
            };
            match self.random.below(6) {
                0 => exchange(&to_outside, &profile),
                1 => exchange(&real, &profile),
                2 => exchange(&wanted, &other),
                3 => drop(fs::remove_file(&wanted)),
                4 => drop(Self::append(&wanted, 2000)),
                _ => self.plant(),
            }
        }
    }
}

/// All that is outside of the folder: content, mode and number of names.
fn state_of(outside: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut paths: Vec<PathBuf> = fs::read_dir(outside).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.push(outside.to_owned());
    paths.sort();
    paths
        .into_iter()
        .map(|path| (path.clone(), path.metadata().unwrap().mode(), fs::read(&path).unwrap_or_default()))
        .collect()
}

/// What may be told of the folder: nothing of the outside, and no more than was asked for.
fn is_within_bounds(content: &[u8]) {
    assert!(content.len() as u64 <= MAX_BYTES, "{} bytes", content.len());
    let odd = content.iter().find(|&&byte| byte != INSIDE);
    assert_eq!(odd, None, "a byte from outside: {:?}", String::from_utf8_lossy(content));
}

/// What became of the questions, to know that they met something.
#[derive(Debug, Default)]
struct Answers {
    read: usize,
    refused: usize,
    taken: usize,
    exceeded: usize,
}

/// Asks for everything that a worker asks for.
fn ask(out: &OutputDir, target: &Path, answers: &mut Answers) {
    for wanted in
        WANTED.iter().chain(&["..", ".", "/etc/passwd", "../outside/stdout.txt", "profile/../../outside/stdout.txt"])
    {
        match out.read_small(wanted, MAX_BYTES) {
            Ok(content) => {
                answers.read += usize::from(!content.is_empty());
                is_within_bounds(&content);
            }
            Err(_) => answers.refused += 1,
        }
        let mut content = Vec::new();
        if out.open_file(wanted, MAX_BYTES).is_ok_and(|mut file| file.read_to_end(&mut content).is_ok()) {
            is_within_bounds(&content);
        }
    }
    if let Ok(usage) = out.usage(LIMITS) {
        assert!(usage.entries <= LIMITS.entries + 1, "{usage:?}");
        answers.exceeded += usize::from(usage.exceeded.is_some());
        assert!(usage.exceeded.is_some() || usage.bytes <= LIMITS.bytes, "{usage:?}");
    }
    if out.move_file("profile/profile.ncu-rep", target, MAX_BYTES).is_ok() {
        answers.taken += 1;
        let taken = TakenDir(target);
        assert!(taken.has("profile.ncu-rep"));
        // It may still grow while somebody writes, and then it is cut off.
        let mut content = Vec::new();
        if let Ok(mut file) = taken.open_file("profile.ncu-rep", MAX_BYTES) {
            drop(file.read_to_end(&mut content));
            content.truncate(usize::try_from(MAX_BYTES).unwrap());
            is_within_bounds(&content);
        }
        fs::remove_file(target.join("profile.ncu-rep")).unwrap();
    }
    assert_eq!(fs::read_dir(target).unwrap().count(), 0, "nothing else is ever moved");
}

/// Zips what there is, under the worker's names, and reads the zip back.
fn zip(out: &OutputDir, path: &Path) {
    let entries: Vec<Entry> = WANTED
        .into_iter()
        .filter_map(|name| {
            let file = out.open_file(name, MAX_BYTES).ok()?;
            Some(Entry { name, content: Content::Collected(file) })
        })
        .collect();
    let count = entries.len();
    archive::write(path, entries).unwrap();
    let mut zip = zip::ZipArchive::new(File::open(path).unwrap()).unwrap();
    let mut names = HashSet::new();
    for index in 0..zip.len() {
        let mut entry = zip.by_index(index).unwrap();
        let name = entry.name().unwrap().into_owned();
        assert!(WANTED.contains(&name.as_str()), "{name}");
        // Systems differ in whether case tells names apart.
        assert!(names.insert(name.to_lowercase()), "{name} stands twice");
        let mut content = Vec::new();
        entry.read_to_end(&mut content).unwrap();
        is_within_bounds(&content);
    }
    assert_eq!(names.len(), count);
}

/// One tree, from its folder to the folder's end.
fn one_tree(seed: u64, users: Users, answers: &mut Answers) {
    become_user(users.reader);
    let private = std::env::temp_dir().join(format!("collect-{}", JobId::random()));
    fs::create_dir(&private).unwrap();
    fs::set_permissions(&private, Permissions::from_mode(0o700)).unwrap();
    let [outside, target] = ["outside", "target"].map(|name| private.join(name));
    for folder in [&outside, &target] {
        fs::create_dir(folder).unwrap();
    }
    for name in ["stdout.txt", "profile.ncu-rep"] {
        fs::write(outside.join(name), SECRET).unwrap();
    }
    let before = state_of(&outside);
    let own = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let writer = users.writer.map_or(own, |id| (id, id));
    let path = private.join("out");
    let output = OutputDir::create(&path, writer).unwrap();
    let handle = openat(CWD, &path, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let (planted, is_planted) = channel();
        let (out, outside, stop) = (handle.as_fd(), outside.as_path(), &stop);
        scope.spawn(move || {
            if users.writer != users.reader {
                become_user(users.writer);
            }
            let mut writer = Writer { random: Random(seed), out, outside };
            for folder in ["profile", "d", "profile/d"] {
                if writer.random.below(4) > 0
                    && let Some((_parent, path)) = within(out, folder.as_bytes())
                {
                    let _ = fs::create_dir(path);
                }
            }
            (0..40).for_each(|_| writer.plant());
            planted.send(()).unwrap();
            writer.race(stop);
        });
        // Whatever fails here, the writer must be told to end first, or nobody would hear of it.
        let asked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            is_planted.recv().unwrap();
            (0..10).for_each(|_| ask(&output, &target, answers));
        }));
        stop.store(true, Ordering::Relaxed);
        if let Err(panic) = asked {
            std::panic::resume_unwind(panic);
        }
    });
    // The writer is gone, as a container is, and the reading proper begins.
    ask(&output, &target, answers);
    zip(&output, &private.join("archive.zip"));
    drop(handle);
    output.remove_all().unwrap();
    assert!(path.symlink_metadata().is_err(), "the folder is left");
    assert_eq!(state_of(&outside), before, "something outside was changed");
    fs::remove_dir_all(private).unwrap();
}

/// Trees that are added until every kind of answer was seen, since a loaded machine's writer gets less in between.
const MORE_SEEDS: u64 = 200;

/// All trees of the given users, each on a thread of its own with a limit.
fn all_trees(users: Users) {
    let seeds = std::env::var("COLLECT_SEEDS").map_or(0..12, |range| {
        let (first, last) = range.split_once("..").unwrap();
        first.parse().unwrap()..last.parse().unwrap()
    });
    let mut answers = Answers::default();
    let enough = seeds.end;
    for seed in seeds.start..enough + MORE_SEEDS {
        let Answers { read, refused, taken, exceeded } = answers;
        if seed >= enough && read > 0 && refused > 0 && taken > 0 && exceeded > 0 {
            return;
        }
        let (done, is_done) = channel();
        thread::spawn(move || {
            one_tree(seed, users, &mut answers);
            done.send(answers).unwrap();
        });
        answers = match is_done.recv_timeout(PATIENCE) {
            Ok(answers) => answers,
            Err(RecvTimeoutError::Timeout) => panic!("seed {seed} of {users:?}: the collector is blocked"),
            // Its panic was printed.
            Err(RecvTimeoutError::Disconnected) => panic!("seed {seed} of {users:?} failed"),
        };
    }
    panic!("not every kind of answer was seen: {answers:?}");
}

/// Whether this test may become other users.
fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

#[test]
fn no_tree_of_the_same_user_gets_anything_past_the_collector() {
    all_trees(Users { writer: None, reader: None });
}

#[test]
fn no_tree_of_a_containers_user_gets_anything_past_a_collector_that_is_root() {
    if is_root() {
        all_trees(Users { writer: Some(NOBODY), reader: None });
    }
}

#[test]
fn no_tree_gets_anything_past_a_collector_that_is_not_root() {
    if is_root() {
        all_trees(Users { writer: Some(NOBODY), reader: Some(NOBODY) });
    }
}
