"""The real file system: the only module that calls the operating system's writing functions."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import time
import uuid
import weakref
from builtins import list as list_of
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from operator import attrgetter
from pathlib import Path
from types import TracebackType
from typing import Self

from custody.errors import LockedError
from custody.vfs.base import Entry, FilesBelow, Space, WritableFile, reported, storage_error
from custody.vfs.durable import TEMPORARY_SUFFIX, DurableOperations, temporary
from custody.vfs.file_marks import Marks, marks_of
from custody.vfs.mapped import map_file

# A process that only checks whether a lock is free holds it for an instant; an opening writer must not fail for that.
_LOCK_PATIENCE_SECONDS = 1.0
_LOCK_POLL_SECONDS = 0.02
_SMALL_BYTES = 1 << 20
_REFUSED_CALLS = frozenset({errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.EINVAL})
"""What the system answers to a call that it does not have, or does not let this process make."""


_ABSENT_CALLS = _REFUSED_CALLS | {errno.ENOLCK}


@contextmanager
def _requires(ability: str, action: str, path: Path) -> Iterator[None]:
    """Turn an OSError of the block into a StorageError, which names the ability that the file system lacks."""
    try:
        yield
    except OSError as error:
        failure = storage_error(action, path, error)
        if error.errno in _ABSENT_CALLS:
            hint = f" This file system has no {ability}, which custody needs: use a local disk or NFS 4."
            failure.args = (f"{failure}{hint}",)
        raise failure from error


# O_EXCL: two attempts can never write into one file.
_NEW_FILE, _FILE_MODE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640


def _acquire(descriptor: int, patience_seconds: float, kind: int = fcntl.LOCK_EX) -> bool:
    """Try to lock a file for that long; the lock ends when the descriptor is closed. Raises OSError.

    NFS grants an exclusive lock to a descriptor for writing alone, a shared one to a descriptor for reading.
    """
    deadline = time.monotonic() + patience_seconds
    while True:
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(_LOCK_POLL_SECONDS)
        else:
            return True


def _name_holder(descriptor: int) -> None:
    """Write this process's number to the file of a lock that it holds."""
    holder = f"{os.getpid()}\n".encode("ascii")
    # A lock that one process takes again and again has its number already. To cut the file each time is dear: some file
    # systems write a file that was cut to the disk when it is closed.
    if os.pread(descriptor, len(holder) + 1, 0) != holder:
        os.ftruncate(descriptor, 0)
        # Not synced: the number serves messages only, the lock is the kernel's.
        os.pwrite(descriptor, holder, 0)


class PosixFile:
    """An append-only file on a real disk."""

    def __init__(self, path: Path, descriptor: int, length: int = 0) -> None:
        self._path = path
        self._descriptor = descriptor
        self._length = length
        self._closed = False
        self._is_synced = False
        """Whether all that this object wrote is durable. Not at first: others may have written to the file."""
        self._writes_synced: bool | None = None
        """Whether the file system is one that syncs with a write; None before anybody asked."""

    @property
    def closed(self) -> bool:
        """Whether close was called."""
        return self._closed

    def write(self, data: bytes) -> int:
        """Append all of `data`, even if the system takes it in parts."""
        # As bytes, whatever the items of a buffer that pyarrow hands in.
        view = data if isinstance(data, bytes) else memoryview(data).cast("B")
        length = len(view)
        self._is_synced = False
        with reported("write", self._path):
            done = os.write(self._descriptor, view)
            while done < length:
                done += os.write(self._descriptor, memoryview(view)[done:])
        # Counted only when all of it is written: after a failure the file may be longer than `tell` says, and must not
        # be used any more.
        self._length += length
        return length

    def write_synced(self, pieces: Sequence[bytes | memoryview]) -> bool:
        """Append all pieces and make them durable in one call of the system; False, with nothing done, elsewhere.

        Two calls let the interpreter go twice, and whoever gets it in between keeps the others waiting.
        """
        # The call syncs what it writes, and nothing that was written before.
        length = sum(map(len, pieces))
        if not (self._is_synced and length and self._can_write_synced()):
            return False
        self._is_synced = False
        with reported("write", self._path):
            try:
                # At the place where the file ends for this descriptor, which moves on, as for `write`.
                done = os.pwritev(self._descriptor, pieces, -1, os.RWF_DSYNC)
            except OSError as error:
                if error.errno not in _REFUSED_CALLS:
                    raise
                # Nothing was done: an old kernel, or a container that may not make the call.
                self._writes_synced = False
                return False
            if done < length:
                rest = memoryview(b"".join(pieces))
                while done < length:
                    done += os.pwritev(self._descriptor, [rest[done:]], -1, os.RWF_DSYNC)
        self._length += length
        self._is_synced = True
        return True

    def _can_write_synced(self) -> bool:
        if self._writes_synced is None:
            # Here, because it loads ctypes, and few files are written again and again.
            from custody.vfs.file_system_type import EXT, XFS, type_of_open

            # Others may take the flag and do nothing about it, as some that are mounted by FUSE did.
            self._writes_synced = hasattr(os, "RWF_DSYNC") and type_of_open(self._descriptor) in (EXT, XFS)
        return self._writes_synced

    def flush(self) -> None:
        """Do nothing: writes are not buffered here."""

    def tell(self) -> int:
        """Return the number of bytes in the file so far."""
        return self._length

    def sync(self) -> None:
        """Make all bytes written so far durable."""
        with reported("sync", self._path):
            # Data and length are enough: the other metadata of a file, such as its times, promise nothing.
            os.fdatasync(self._descriptor)
        self._is_synced = True

    def close(self) -> None:
        """Release the descriptor; a second call does nothing."""
        if not self._closed:
            self._closed = True
            with reported("close", self._path):
                os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def write_durably(file: WritableFile, *pieces: bytes | memoryview) -> None:
    """Append pieces of bytes, one behind the other, to a file of any file system; make all written so far durable.

    Durability: that of `write` and `sync`, one after the other, by one call of the system where it has one.

    Raises:
        StorageError: the disk refused; the caller must stop using the file.
    """
    # A subclass that changes what a write or a sync does is asked for both.
    if not (type(file) is PosixFile and file.write_synced(pieces)):
        file.write(b"".join(pieces))
        file.sync()


class PosixPartialFile:
    """A file on a real disk that is filled in any order; holes take no room. The descriptor closes with the object."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path
        self._descriptor = descriptor
        # Before the mapping, which may fail: the descriptor is closed with this object in any case.
        weakref.finalize(self, os.close, descriptor)
        # By the descriptor: the name may be another file's by now.
        self.view = map_file(Path(f"/dev/fd/{descriptor}"))

    def fill(self, start: int, data: bytes) -> None:
        """Write bytes at a place."""
        # By the descriptor and not into the mapping: on a full disk that would end the process.
        view, done = memoryview(data), 0
        with reported("write", self._path):
            while done < len(view):
                done += os.pwrite(self._descriptor, view[done:], start + done)


def _read_whole(path: str | Path) -> bytes:
    """Return the content of a file; raises OSError."""
    # A look at a catalog reads files of some hundred bytes, and Python's own file objects take as long again.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        size = os.fstat(descriptor).st_size
        # A larger file is read in as many calls as the system wants.
        if size < _SMALL_BYTES:
            data = os.read(descriptor, size + 1)
            # One byte more was asked for: this is all.
            if len(data) == size:
                return data
    finally:
        os.close(descriptor)
    return Path(path).read_bytes()  # large, or it grew in this moment


def _names_in(folder: str | Path) -> list[str]:
    """Return the sorted names in a folder; an absent folder is empty. Raises OSError."""
    try:
        return sorted(os.listdir(folder))
    except FileNotFoundError:
        return []


def _folders_in(folder: str | Path) -> set[str]:
    """Return those names in a folder that are folders themselves, not links to one; an absent folder is empty.

    Raises OSError.
    """
    try:
        # The folder says of each name what it is: nothing else is looked at.
        with os.scandir(folder) as entries:
            return {entry.name for entry in entries if entry.is_dir(follow_symlinks=False)}
    except FileNotFoundError:
        return set()


def _entries_in(folder: str) -> list[Entry]:
    """Return what is in a folder, sorted by name; an absent folder is empty. Raises OSError."""
    found = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    found.append(Entry(entry.name, True))
                    continue
                try:
                    status = entry.stat()
                except FileNotFoundError:
                    continue  # it has just gone, or is a link that leads nowhere
                except OSError:
                    found.append(Entry(entry.name, False, 0, 0, False))
                    continue
                found.append(Entry(entry.name, False, status.st_size, status.st_mtime_ns // 1_000_000))
    except FileNotFoundError:
        return []
    found.sort(key=attrgetter("name"))
    return found


def _is_folder_of_lower_layer(source: Path, target: Path) -> bool:
    """Whether a rename that the system took for one to another device is one within overlayfs; raises OSError."""
    return source.is_dir() and not source.is_symlink() and os.stat(source).st_dev == os.stat(target.parent).st_dev


def _link_tree(source: Path, target: Path) -> None:
    """Give the files of a folder second names in a new folder, durably; raises OSError."""
    os.mkdir(target, 0o750)
    with os.scandir(source) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                _link_tree(Path(entry.path), target / entry.name)
            else:
                os.link(entry.path, target / entry.name)
    descriptor = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _add_directory(folder: str | Path) -> None:
    """Make one folder; one that is there already is fine. Raises OSError."""
    try:
        os.mkdir(folder, 0o750)
    except FileExistsError:
        # Another process may have made it just now; a file of that name is an error.
        if not os.path.isdir(folder):
            raise


class _BelowOnDisk(FilesBelow):
    """Asks the operating system by texts."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder).rstrip("/")

    def read(self, name: str) -> bytes:
        """Return the whole content of a file."""
        path = f"{self._folder}/{name}"
        try:
            return _read_whole(path)
        except OSError as error:
            raise storage_error("read", Path(path), error) from error

    def list(self, name: str) -> list_of[str]:
        """Return the sorted names in a folder; an absent folder is empty."""
        path = f"{self._folder}/{name}"
        try:
            return _names_in(path)
        except OSError as error:
            raise storage_error("list", Path(path), error) from error

    def folders(self, name: str) -> set[str]:
        """Return those names in a folder that are folders themselves; an absent folder is empty."""
        path = f"{self._folder}/{name}"
        try:
            return _folders_in(path)
        except OSError as error:
            raise storage_error("list", Path(path), error) from error

    def entries(self, name: str) -> list_of[Entry]:
        """Return what is in a folder, sorted by name; an absent folder is empty."""
        path = f"{self._folder}/{name}"
        try:
            return _entries_in(path)
        except OSError as error:
            raise storage_error("list", Path(path), error) from error

    def is_absent(self, name: str) -> bool:
        """Whether nothing has this name; False also where nobody can tell."""
        try:
            os.lstat(f"{self._folder}/{name}")
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return False

    def add_directory(self, name: str) -> None:
        """Make one folder in a folder that exists; one that is there already is fine."""
        path = f"{self._folder}/{name}"
        try:
            _add_directory(path)
        except OSError as error:
            raise storage_error("make the folder", Path(path), error) from error

    def create_with(self, name: str, data: bytes | memoryview) -> None:
        """Make a new file with some bytes; raises if the name exists."""
        path, action = f"{self._folder}/{name}", "create"
        try:
            descriptor = os.open(path, _NEW_FILE, _FILE_MODE)
            action = "write"
            try:
                done = os.write(descriptor, data)
                while done < len(data):
                    done += os.write(descriptor, memoryview(data)[done:])
            finally:
                os.close(descriptor)
        except OSError as error:
            raise storage_error(action, Path(path), error) from error


class PosixFileSystem(DurableOperations):
    """Durable effects on the local machine; stateless, so it can be sent to other processes."""

    def create(self, path: Path) -> PosixFile:
        """Make a new file for appending; raises if the name exists."""
        with reported("create", path):
            return PosixFile(path, os.open(path, _NEW_FILE, _FILE_MODE))

    def append(self, path: Path) -> PosixFile:
        """Open a file that exists, to append to what it holds."""
        with reported("open", path):
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC)
            return PosixFile(path, descriptor, os.fstat(descriptor).st_size)

    def read(self, path: Path) -> bytes:
        """Return the whole content."""
        with reported("read", path):
            return _read_whole(path)

    def read_part(self, path: Path, start: int, length: int) -> bytes:
        """Return up to `length` bytes from `start`."""
        with reported("read", path):
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                parts: list_of[bytes] = []
                # The system reads at most 2 GiB in a call.
                while length and (part := os.pread(descriptor, length, start)):
                    parts.append(part)
                    start, length = start + len(part), length - len(part)
            finally:
                os.close(descriptor)
            return parts[0] if len(parts) == 1 else b"".join(parts)

    def view(self, path: Path) -> memoryview:
        """Map the file as `map_file` does, so that any number of files can be mapped at once."""
        with reported("read", path):
            return map_file(path)

    def partial(self, path: Path, size: int) -> PosixPartialFile:
        """Open a file to be filled; one of another length gives way to a new one."""
        with reported("open", path):
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            except FileNotFoundError:
                return self._new_partial(path, size)
            if os.fstat(descriptor).st_size == size:
                return PosixPartialFile(path, descriptor)
            os.close(descriptor)
            return self._new_partial(path, size)

    def _new_partial(self, path: Path, size: int) -> PosixPartialFile:
        # Its name comes last: nobody maps a file that gets its length later. Of two that are made at once one keeps the
        # name, and both can be used.
        made = path.with_name(f"{path.name}.{uuid.uuid4().hex}{TEMPORARY_SUFFIX}")
        descriptor = os.open(made, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o640)
        try:
            os.ftruncate(descriptor, size)
            os.rename(made, path)
        except OSError:
            os.close(descriptor)
            made.unlink(missing_ok=True)
            raise
        return PosixPartialFile(path, descriptor)

    def exists(self, path: Path) -> bool:
        """Whether a file or folder of that name exists."""
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        """Whether the name is a folder itself, not a link to one."""
        try:
            # By lstat: `remove_tree` must not follow a link out of its folder.
            return stat.S_ISDIR(path.lstat().st_mode)
        except OSError:
            return False

    def is_file(self, path: Path) -> bool | None:
        """Whether a name is that of a regular file, or of a link to one; a dangling link counts as something else."""
        with reported("look at", path):
            try:
                status = path.lstat()
            except FileNotFoundError:
                return None
            if stat.S_ISLNK(status.st_mode):
                try:
                    status = path.stat()
                except FileNotFoundError:
                    return False
            return stat.S_ISREG(status.st_mode)

    def size(self, path: Path) -> int:
        """Return the file's length in bytes."""
        with reported("look at", path):
            return path.stat().st_size

    def modified_ms(self, path: Path) -> int:
        """Return when a file was last written, in ms since the epoch."""
        with reported("look at", path):
            return path.stat().st_mtime_ns // 1_000_000

    def marks(self, paths: Sequence[str]) -> Marks | None:
        """Return marks of files and folders; None where one of them cannot be looked at."""
        try:
            return marks_of(paths)
        except OSError:
            return None  # who looks at it reports why

    def keeps_times(self, path: Path) -> bool:
        """Whether the file system of a path is known to keep times of this machine's clock."""
        # Imported here: what it needs takes as long to import as a small command runs.
        from custody.vfs.file_system_type import keeps_times

        return keeps_times(path)

    def space(self, folder: Path) -> Space | None:
        """Return the room of the disk that holds a folder, None for one that is not there."""
        try:
            disk = os.statvfs(folder)
        except OSError:
            return None
        # By f_bavail, not f_bfree: what is reserved for root cannot be written by this user.
        is_read_only = bool(disk.f_flag & os.ST_RDONLY)
        return Space(disk.f_blocks * disk.f_frsize, disk.f_bavail * disk.f_frsize, is_read_only)

    def list(self, folder: Path) -> list[str]:
        """Return the sorted names in a folder; an absent folder is empty."""
        with reported("list", folder):
            return _names_in(folder)

    def folders(self, folder: Path) -> set[str]:
        """Return those names in a folder that are folders themselves, not links to one; an absent folder is empty."""
        with reported("list", folder):
            return _folders_in(folder)

    def below(self, folder: Path) -> FilesBelow:
        """Return what reads and makes files below a folder by texts."""
        # A subclass may change what a call does, and is asked for each.
        return _BelowOnDisk(folder) if type(self) is PosixFileSystem else super().below(folder)

    def add_directory(self, folder: Path) -> None:
        """Make one folder; one that is there already is fine."""
        with reported("make the folder", folder):
            _add_directory(folder)

    def rename(self, source: Path, target: Path) -> None:
        """Move atomically within a file system; a folder's target must be absent or empty.

        A folder that came with the image of a container is moved file by file, for overlayfs renames none: a crash
        leaves it whole under its name or under the new one, and perhaps a rest of it under the former.
        """
        with reported(f"rename to {target} the file", source):
            try:
                # The system refuses to replace a folder that holds files: a unit that another attempt published stays.
                os.rename(source, target)
            except OSError as error:
                if error.errno != errno.EXDEV or not _is_folder_of_lower_layer(source, target):
                    raise
                self._move_up(source, target)

    def _move_up(self, source: Path, target: Path) -> None:
        """Move a folder of a lower layer of overlayfs; raises OSError."""
        partial = temporary(target)
        try:
            _link_tree(source, partial)
            os.rename(partial, target)
        except BaseException:
            self.remove_tree(partial)
            raise
        # The new name is durable before the first file of the former one goes.
        self.sync_directory(target.parent)
        self.remove_tree(source)

    def remove(self, path: Path) -> None:
        """Remove a file; an absent one is fine."""
        with reported("remove", path):
            path.unlink(missing_ok=True)

    def remove_directory(self, folder: Path) -> None:
        """Remove an empty folder; an absent one is fine."""
        with reported("remove the folder", folder):
            try:
                os.rmdir(folder)
            except FileNotFoundError:
                return

    def link(self, source: Path, target: Path) -> bool:
        """Give a file a second name; return False, with nothing changed, when that name is taken."""
        with _requires("hard links", f"publish as {target} the file", source):
            try:
                os.link(source, target)
            except FileExistsError:
                return False
            return True

    def cut(self, path: Path, length: int) -> None:
        """Cut a file to `length` bytes; durable after sync_file."""
        with reported("truncate", path):
            os.truncate(path, length)

    def sync_file(self, path: Path) -> None:
        """Make the content of a file durable that somebody else wrote."""
        with reported("sync", path):
            # A read-only descriptor is enough: the sync covers what the page cache holds of the file, whoever wrote it.
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def sync_directory(self, folder: Path) -> None:
        """Make the names in a folder durable."""
        with _requires("sync of a folder", "sync", folder):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)

    def sync_disk(self, folder: Path) -> bool:
        """Make everything durable on the disk of a folder, where its file system is known to do so."""
        with reported("sync the disk of", folder):
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                # Imported here: only those who write many files at once need it.
                from custody.vfs.whole_disk import sync_disk_of

                return sync_disk_of(descriptor)
            finally:
                os.close(descriptor)

    @contextmanager
    def lock(self, path: Path) -> Iterator[None]:
        """Hold `path` locked; the file names the holder and stays behind, unlocked, when the context ends."""
        with reported("open the lock", path):
            # The kernel drops the lock when the holder dies, so that none outlives its process; O_CLOEXEC keeps
            # programs that the holder starts from holding it on.
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o640)
        try:
            with _requires("locks", "lock", path):
                is_held = _acquire(descriptor, _LOCK_PATIENCE_SECONDS)
            if not is_held:
                holder = os.pread(descriptor, 64, 0).decode("ascii", "replace").strip() or "unknown"
                raise LockedError(
                    f"{path} is held by the live process {holder}. Wait until it ends, or use another writer name."
                )
            # The file stays behind: if it were removed, a second process could lock a new file of that name while the
            # first still holds the old one.
            _name_holder(descriptor)
            yield
        finally:
            os.close(descriptor)

    def is_locked(self, path: Path) -> bool:
        """Whether a live process holds `path` locked; an absent file is not locked."""
        with reported("open the lock", path):
            try:
                # Opened for reading: the check makes no file and needs no right to write.
                descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                return False
        try:
            # Shared: nobody but a holder refuses it, and two checks do not refuse each other.
            with _requires("locks", "check the lock", path):
                return not _acquire(descriptor, 0, fcntl.LOCK_SH)
        finally:
            os.close(descriptor)


def note_use(path: Path) -> None:
    """Note that a file was used now, in its time of writing: for files whose use decides how long they stay.

    Nothing depends on the note: a file that is gone, or belongs to somebody else, is passed over.
    """
    with suppress(OSError):
        os.utime(path)


def room_of(path: Path) -> int:
    """Return the bytes that a file takes on its disk, 0 for one that is gone; holes take none."""
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0
