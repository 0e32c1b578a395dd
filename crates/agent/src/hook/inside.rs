//! A container's file system, confined to its root: symlinks are resolved here, one component at a time, relative to
//! the container's root. Each step is an open directory, so that a concurrent swap is detected, not followed.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, mkdirat, openat, readlinkat, renameat, statat, symlinkat, unlinkat};
use rustix::io::Errno;

/// Maximum number of symlinks on a path, as in the kernel.
const MAX_LINKS: usize = 40;

/// A container's root.
pub(super) struct Inside {
    root: OwnedFd,
}

/// A resolved path: the open directories along it, and the name in the last one.
struct Place<'a> {
    root: BorrowedFd<'a>,
    way: Vec<(OwnedFd, OsString)>,
    /// None if the path is an opened directory, such as the root.
    name: Option<OsString>,
}

impl Place<'_> {
    fn dir(&self) -> BorrowedFd<'_> {
        self.way.last().map_or(self.root, |(dir, _)| dir.as_fd())
    }

    fn path(&self) -> PathBuf {
        let way = self.way.iter().map(|(_, name)| name.as_os_str());
        Path::new("/").join(way.chain(self.name.as_deref()).collect::<PathBuf>())
    }
}

/// What to do with missing directories.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Missing {
    Fail,
    Make,
}

/// Whether a symlink at the end of a path is followed.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Last {
    Follow,
    Keep,
}

impl Inside {
    pub(super) fn open(root: &Path) -> io::Result<Self> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(Self { root: rustix::fs::open(root, flags, Mode::empty())? })
    }

    fn find(&self, path: &Path, missing: Missing, last: Last) -> io::Result<Place<'_>> {
        let mut todo = names(path);
        let mut place = Place { root: self.root.as_fd(), way: Vec::new(), name: None };
        let mut links = 0;
        while let Some(name) = todo.pop() {
            if name == ".." {
                place.way.pop();
                continue;
            }
            let end = todo.is_empty();
            match readlinkat(place.dir(), &name, Vec::new()) {
                Ok(_) if end && last == Last::Keep => {}
                Ok(target) => {
                    links += 1;
                    if links > MAX_LINKS {
                        return Err(Errno::LOOP.into());
                    }
                    let target = Path::new(OsStr::from_bytes(target.as_bytes()));
                    if target.is_absolute() {
                        place.way.clear();
                    }
                    todo.extend(names(target));
                    continue;
                }
                Err(Errno::INVAL) => {}
                Err(Errno::NOENT) if end => {}
                Err(Errno::NOENT) if missing == Missing::Make => {
                    match mkdirat(place.dir(), &name, Mode::from_raw_mode(0o755)) {
                        Ok(()) | Err(Errno::EXIST) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
                Err(error) => return Err(error.into()),
            }
            if end {
                place.name = Some(name);
                return Ok(place);
            }
            let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let next = openat(place.dir(), &name, flags, Mode::empty())?;
            place.way.push((next, name));
        }
        Ok(place)
    }

    /// Opens a path.
    fn open_at(&self, path: &Path, flags: OFlags) -> io::Result<OwnedFd> {
        let place = self.find(path, Missing::Fail, Last::Follow)?;
        let name = place.name.clone().unwrap_or_else(|| ".".into());
        Ok(openat(place.dir(), name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?)
    }

    /// An `O_PATH` handle, for mounting on it.
    pub(super) fn handle(&self, path: &Path) -> io::Result<OwnedFd> {
        self.open_at(path, OFlags::PATH)
    }

    /// Resolves a path in the container. It must exist.
    pub(super) fn resolve(&self, path: &Path) -> io::Result<PathBuf> {
        let place = self.find(path, Missing::Fail, Last::Follow)?;
        if let Some(name) = &place.name {
            statat(place.dir(), name, AtFlags::SYMLINK_NOFOLLOW)?;
        }
        Ok(place.path())
    }

    pub(super) fn is_file(&self, path: &Path) -> bool {
        let found = self.open_at(path, OFlags::PATH).and_then(|file| Ok(rustix::fs::fstat(file)?));
        found.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile)
    }

    pub(super) fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        // Non-blocking: an image could have a FIFO in place of a file.
        let file = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        let mut bytes = Vec::new();
        io::Read::read_to_end(&mut std::fs::File::from(file), &mut bytes)?;
        Ok(bytes)
    }

    /// The names in a directory with their metadata.
    pub(super) fn list(&self, path: &Path) -> io::Result<Vec<(String, rustix::fs::Stat)>> {
        let dir = self.open_at(path, OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut found = Vec::new();
        for entry in rustix::fs::Dir::read_from(&dir)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            if matches!(name, "." | "..") {
                continue;
            }
            if let Ok(stat) = statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW) {
                found.push((name.to_owned(), stat));
            }
        }
        found.sort_by(|a, b| a.0.cmp(&b.0));
        Ok(found)
    }

    /// Writes a file atomically, and creates its directories.
    pub(super) fn write(&self, path: &Path, content: &[u8]) -> io::Result<()> {
        let place = self.find(path, Missing::Make, Last::Follow)?;
        let name = place.name.clone().ok_or(Errno::ISDIR)?;
        let temporary = temporary(&name);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let _ = unlinkat(place.dir(), &temporary, AtFlags::empty());
        let file = openat(place.dir(), &temporary, flags, Mode::from_raw_mode(0o644))?;
        // The umask must not decide whether a container can read it.
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
        io::Write::write_all(&mut std::fs::File::from(file), content)?;
        Ok(renameat(place.dir(), &temporary, place.dir(), &name)?)
    }

    /// Writes a file under the first unused name of `names`, and returns it.
    pub(super) fn write_new(
        &self,
        dir: &str,
        names: impl Iterator<Item = String>,
        content: &[u8],
    ) -> io::Result<String> {
        for name in names {
            let path = Path::new(dir).join(&name);
            let place = self.find(&path, Missing::Make, Last::Keep)?;
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            match openat(place.dir(), &name, flags, Mode::from_raw_mode(0o644)) {
                Ok(file) => {
                    rustix::fs::fchmod(&file, Mode::from_raw_mode(0o644))?;
                    io::Write::write_all(&mut std::fs::File::from(file), content)?;
                    return Ok(name);
                }
                Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(Errno::EXIST.into())
    }

    /// Creates a symlink and its directories. An identical one is kept; anything else is replaced.
    pub(super) fn link(&self, target: &str, path: &Path) -> io::Result<()> {
        let place = self.find(path, Missing::Make, Last::Keep)?;
        let name = place.name.clone().ok_or(Errno::ISDIR)?;
        if readlinkat(place.dir(), &name, Vec::new()).is_ok_and(|found| found.as_bytes() == target.as_bytes()) {
            return Ok(());
        }
        let temporary = temporary(&name);
        let _ = unlinkat(place.dir(), &temporary, AtFlags::empty());
        symlinkat(target, place.dir(), &temporary)?;
        renameat(place.dir(), &temporary, place.dir(), &name).map_err(|error| {
            let _ = unlinkat(place.dir(), &temporary, AtFlags::empty());
            error.into()
        })
    }

    /// Creates a directory and its parents.
    pub(super) fn make_dir(&self, path: &Path) -> io::Result<()> {
        let place = self.find(&path.join("."), Missing::Make, Last::Follow)?;
        match &place.name {
            Some(name) => match mkdirat(place.dir(), name, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => Ok(()),
                Err(error) => Err(error.into()),
            },
            None => Ok(()),
        }
    }

    /// Removes an empty directory.
    pub(super) fn remove_dir(&self, path: &Path) -> io::Result<()> {
        let place = self.find(path, Missing::Fail, Last::Keep)?;
        let name = place.name.clone().ok_or(Errno::BUSY)?;
        Ok(unlinkat(place.dir(), &name, AtFlags::REMOVEDIR)?)
    }

    pub(super) fn chmod(&self, path: &Path, mode: u32) -> io::Result<()> {
        let file = self.open_at(path, OFlags::RDONLY | OFlags::NONBLOCK)?;
        Ok(rustix::fs::fchmod(file, Mode::from_raw_mode(mode))?)
    }
}

fn temporary(name: &OsStr) -> OsString {
    let mut temporary = OsString::from(".");
    temporary.push(name);
    temporary.push(format!(".{}", std::process::id()));
    temporary
}

/// Components of a path, in reverse.
fn names(path: &Path) -> Vec<OsString> {
    let named = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        _ => None,
    });
    let mut names: Vec<OsString> = named.collect();
    names.reverse();
    names
}
