//! Real hostile trees.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{CWD, Mode, OFlags, mkdirat, mkfifoat, openat};

use super::*;

const LIMITS: UsageLimits = UsageLimits { entries: 1_000, depth: 8, bytes: 1 << 20, free_bytes: 0 };

/// A private folder with an output folder in it.
struct Fixture {
    private: tempfile::TempDir,
    out: OutputDir,
}

impl Fixture {
    fn new() -> Self {
        let closed = fs::Permissions::from_mode(0o700);
        let private = tempfile::Builder::new().permissions(closed).tempdir().unwrap();
        let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let out = OutputDir::create(&private.path().join("out"), ids).unwrap();
        Self { private, out }
    }

    fn path(&self, relative: &str) -> std::path::PathBuf {
        self.out.path().join(relative)
    }

    fn write(&self, relative: &str, content: &[u8]) {
        fs::write(self.path(relative), content).unwrap();
    }

    /// Removes the tree and asserts that nothing of it is left.
    fn remove(self) {
        let path = self.out.path().to_owned();
        self.out.remove_all().unwrap();
        assert!(!path.exists());
        assert_eq!(fs::read_dir(self.private.path()).unwrap().count(), 0);
    }
}

/// Folders within folders, made by handles because the path is longer than any call takes.
fn deep_folders(top: &Path, depth: usize) {
    let mut folder = openat(CWD, top, OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    for _ in 0..depth {
        mkdirat(&folder, "d", Mode::RWXU).unwrap();
        folder = openat(&folder, "d", OFlags::DIRECTORY | OFlags::RDONLY, Mode::empty()).unwrap();
    }
    let file = openat(&folder, "bottom", OFlags::CREATE | OFlags::WRONLY, Mode::RUSR).unwrap();
    File::from(file).write_all(b"x").unwrap();
}

#[test]
fn a_regular_file_is_read() {
    let it = Fixture::new();
    fs::create_dir(it.path("profile")).unwrap();
    it.write("profile/profile.ncu-rep", b"report");
    let mut file = it.out.open_file("profile/profile.ncu-rep", 6).unwrap();
    let mut content = String::new();
    file.read_to_string(&mut content).unwrap();
    assert_eq!((file.size_bytes(), content.as_str()), (6, "report"));
    assert_eq!(it.out.read_small("profile/profile.ncu-rep", 6).unwrap(), b"report");
}

#[test]
fn a_missing_file_is_told_from_a_refused_one() {
    let it = Fixture::new();
    assert!(matches!(it.out.open_file("stdout.txt", 1), Err(CollectError::Missing)));
    assert!(matches!(it.out.open_file("profile/profile.ncu-rep", 1), Err(CollectError::Missing)));
    it.write("profile", b"");
    assert!(matches!(it.out.open_file("profile/profile.ncu-rep", 1), Err(CollectError::NotRegular)));
}

#[test]
fn a_symlink_is_refused_wherever_it_leads() {
    let it = Fixture::new();
    it.write("inside", b"x");
    let out = it.out.path().to_str().unwrap().to_owned();
    for target in ["/etc/shadow", "/proc/self/environ", "inside", "../out/inside", "nowhere", &out] {
        symlink(target, it.path("stdout.txt")).unwrap();
        assert!(matches!(it.out.open_file("stdout.txt", 1 << 20), Err(CollectError::NotRegular)), "{target}");
        fs::remove_file(it.path("stdout.txt")).unwrap();
    }
}

#[test]
fn a_folder_swapped_for_a_symlink_is_refused() {
    let it = Fixture::new();
    let elsewhere = it.private.path().join("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("profile.ncu-rep"), b"secret").unwrap();
    for target in [elsewhere.to_str().unwrap(), "../elsewhere"] {
        symlink(target, it.path("profile")).unwrap();
        assert!(matches!(it.out.open_file("profile/profile.ncu-rep", 99), Err(CollectError::NotRegular)), "{target}");
        fs::remove_file(it.path("profile")).unwrap();
    }
}

#[test]
fn an_output_folder_replaced_after_it_was_opened_is_not_looked_at() {
    let it = Fixture::new();
    it.write("stdout.txt", b"ours");
    fs::rename(it.out.path(), it.private.path().join("aside")).unwrap();
    fs::create_dir(it.out.path()).unwrap();
    it.write("stdout.txt", b"theirs");
    assert_eq!(it.out.read_small("stdout.txt", 99).unwrap(), b"ours");
}

#[test]
fn a_path_out_of_the_folder_is_refused() {
    let it = Fixture::new();
    fs::write(it.private.path().join("secret"), b"x").unwrap();
    for path in ["../secret", "/etc/hostname", "profile/../../secret"] {
        assert!(it.out.open_file(path, 99).is_err(), "{path}");
    }
}

#[test]
fn a_hard_link_is_refused() {
    let it = Fixture::new();
    let secret = it.private.path().join("secret");
    fs::write(&secret, b"x").unwrap();
    fs::hard_link(&secret, it.path("stdout.txt")).unwrap();
    assert!(matches!(it.out.open_file("stdout.txt", 99), Err(CollectError::Linked)));
}

#[test]
fn pipes_sockets_devices_and_folders_are_refused_without_blocking() {
    let it = Fixture::new();
    mkfifoat(CWD, it.path("pipe"), Mode::RWXU).unwrap();
    let _listener = UnixListener::bind(it.path("socket")).unwrap();
    fs::create_dir(it.path("folder")).unwrap();
    for name in ["pipe", "socket", "folder"] {
        assert!(matches!(it.out.open_file(name, 99), Err(CollectError::NotRegular)), "{name}");
    }
    // Only root can make a device, and not on every file system.
    let null = rustix::fs::makedev(1, 3);
    if rustix::fs::mknodat(CWD, it.path("null"), rustix::fs::FileType::CharacterDevice, Mode::RUSR, null).is_ok() {
        let refused = it.out.open_file("null", 99);
        assert!(matches!(refused, Err(CollectError::NotRegular | CollectError::Unreadable)), "{refused:?}");
    }
    it.remove();
}

#[test]
fn a_file_past_the_limit_is_refused_before_it_is_read() {
    let it = Fixture::new();
    let terabyte = 1 << 40;
    File::create(it.path("sparse")).unwrap().set_len(terabyte).unwrap();
    assert!(
        matches!(it.out.open_file("sparse", terabyte - 1), Err(CollectError::TooLarge { limit }) if limit == terabyte - 1)
    );
    assert!(matches!(it.out.read_small("sparse", 10), Err(CollectError::TooLarge { limit: 10 })));
}

#[test]
fn a_file_that_grows_after_it_was_opened_is_cut_off_at_the_limit() {
    let it = Fixture::new();
    it.write("stdout.txt", b"short");
    let mut file = it.out.open_file("stdout.txt", 8).unwrap();
    it.write("stdout.txt", b"much longer than eight bytes");
    let error = io::copy(&mut file, &mut io::sink()).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::FileTooLarge);
}

#[test]
fn usage_counts_what_is_there() {
    let it = Fixture::new();
    fs::create_dir(it.path("profile")).unwrap();
    it.write("profile/a", b"four");
    it.write("b", b"three");
    symlink("/usr", it.path("link")).unwrap();
    let usage = it.out.usage(LIMITS).unwrap();
    assert_eq!(usage, Usage { entries: 4, bytes: 4 + 5 + 4, exceeded: None });
}

#[test]
fn space_taken_by_a_file_without_a_name_is_seen() {
    let it = Fixture::new();
    let free = || {
        let disk = rustix::fs::fstatvfs(it.out.root()).unwrap();
        disk.f_bavail * disk.f_frsize
    };
    // Much, so that what other programs on this disk write meanwhile does not matter.
    let taken: u64 = 256 << 20;
    let limits = UsageLimits { free_bytes: free().checked_sub(taken / 2).unwrap(), ..LIMITS };
    assert_eq!(it.out.usage(limits).unwrap().exceeded, None);

    let file = File::create(it.path("x")).unwrap();
    fs::remove_file(it.path("x")).unwrap();
    rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, taken).unwrap();
    assert_eq!(it.out.usage(limits).unwrap(), Usage { exceeded: Some(Exceeded::Space), ..Usage::default() });
    drop(file);
}

#[test]
fn usage_names_the_limit_and_stops_there() {
    let it = Fixture::new();
    File::create(it.path("sparse")).unwrap().set_len(1 << 40).unwrap();
    assert_eq!(it.out.usage(LIMITS).unwrap().exceeded, Some(Exceeded::Bytes));
    fs::remove_file(it.path("sparse")).unwrap();

    deep_folders(it.out.path(), 5_000);
    let usage = it.out.usage(LIMITS).unwrap();
    assert_eq!((usage.exceeded, usage.entries), (Some(Exceeded::Depth), 9));
    it.remove();

    let it = Fixture::new();
    for index in 0..50_000 {
        it.write(&format!("f{index}"), b"");
    }
    let usage = it.out.usage(LIMITS).unwrap();
    assert_eq!((usage.exceeded, usage.entries), (Some(Exceeded::Entries), 1_001));
    it.remove();
}

#[test]
fn removal_follows_no_link() {
    let it = Fixture::new();
    let kept = tempfile::tempdir().unwrap();
    fs::write(kept.path().join("precious"), b"x").unwrap();
    symlink(kept.path(), it.path("folder")).unwrap();
    symlink(kept.path().join("precious"), it.path("file")).unwrap();
    fs::create_dir(it.path("inner")).unwrap();
    symlink(kept.path(), it.path("inner/folder")).unwrap();
    let mode = kept.path().metadata().unwrap().mode();
    it.remove();
    assert!(kept.path().join("precious").exists());
    assert_eq!(kept.path().metadata().unwrap().mode(), mode);
}

#[test]
fn removal_copes_with_odd_names_closed_folders_and_names_of_its_own() {
    let it = Fixture::new();
    let long = [b'n'; 255];
    for name in [&b"\xff\xfe"[..], b"new\nline", b"..\\x", b"-rf", &long] {
        let folder = it.out.path().join(OsStr::from_bytes(name));
        fs::create_dir_all(folder.join("a/b")).unwrap();
        fs::write(folder.join("a/file"), b"x").unwrap();
        fs::set_permissions(folder.join("a"), fs::Permissions::from_mode(0o000)).unwrap();
    }
    // What the removal calls the folders that it moves.
    for index in 1..5 {
        fs::create_dir_all(it.path(&format!("moved-{index}/moved-{index}/moved-1"))).unwrap();
    }
    it.write("moved-7", b"");
    fs::set_permissions(it.out.path(), fs::Permissions::from_mode(0o000)).unwrap();
    it.remove();
}

#[test]
fn an_output_folder_is_made_only_in_a_private_place() {
    let parent = tempfile::tempdir().unwrap();
    fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let error = OutputDir::create(&parent.path().join("out"), (65534, 65534)).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
    assert!(!parent.path().join("out").exists());
}

#[test]
fn an_output_folder_is_made_new_and_for_the_containers_user_alone() {
    let it = Fixture::new();
    let ids = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    let error = OutputDir::create(it.out.path(), ids).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    let made = it.out.path().metadata().unwrap();
    assert_eq!((made.mode() & 0o777, made.uid(), made.gid()), (0o700, ids.0, ids.1));
}
