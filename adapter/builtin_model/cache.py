"""The folder that models are cached in; each is built once, and whole or not at all."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from adapter.builtin_model.reporting import DefaultModelError, Report

CACHE_VARIABLE = "COMPLETION_V2_CACHE"
# Part of every cached path: raise it whenever the conversion writes something different, so that
# folders written by an older version are left alone rather than taken for new ones.
CACHE_LAYOUT = "1"

Build = Callable[[Path, Path], None]
"""Fills the first folder; the second one is for intermediate files and is thrown away."""


def cache_folder() -> Path:
    """The folder for everything this package caches.

    `$COMPLETION_V2_CACHE`, else `$XDG_CACHE_HOME/vllm-completion-v2`, else
    `~/.cache/vllm-completion-v2`. It need not exist yet.
    """
    override = os.environ.get(CACHE_VARIABLE)
    if override:
        return Path(override).expanduser().absolute()
    base = Path(os.environ.get("XDG_CACHE_HOME", ""))
    # The XDG specification says to ignore a relative path, which an unset variable is here too.
    if not base.is_absolute():
        base = Path.home() / ".cache"
    return base / "vllm-completion-v2"


def model_folder(name: str) -> Path:
    """The folder of the cached model `name`, whether or not it has been built."""
    return cache_folder() / f"models-{CACHE_LAYOUT}" / name


def ensure_folder(target: Path, files: tuple[str, ...], build: Build, report: Report) -> Path:
    """Return `target`, after `build` has filled it unless it already holds all of `files`.

    Any number of processes may call this at once: one builds and the others wait for it. A
    folder shows up under the name `target` only when it is complete.
    Raises DefaultModelError when the file system refuses.
    """
    if _is_complete(target, files):
        return target
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with _exclusive_lock(target.with_name(f".{target.name}.lock"), report):
            if not _is_complete(target, files):
                _build_beside(target, files, build)
                report(f"Ready: {target}")
    except OSError as error:
        raise DefaultModelError(
            f"cannot prepare {target.name} in {target.parent}: {error}"
            f" (set {CACHE_VARIABLE} to a folder that can be written)"
        ) from error
    return target


def _is_complete(folder: Path, files: tuple[str, ...]) -> bool:
    """Whether every one of `files` is in `folder` and not empty."""
    paths = [folder / name for name in files]
    return all(path.is_file() and path.stat().st_size > 0 for path in paths)


@contextmanager
def _exclusive_lock(lock_file: Path, report: Report) -> Iterator[None]:
    """Hold an advisory lock, which the system also gives back when the process is killed."""
    with lock_file.open("w") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("Another process is preparing the model; waiting for it.")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _build_beside(target: Path, files: tuple[str, ...], build: Build) -> None:
    """Build in a temporary folder next to `target` and rename. The caller holds the lock."""
    prefix = f".{target.name}.building-"
    # The lock is ours, so whatever is left here belongs to a build that was killed.
    for leftover in target.parent.glob(f"{prefix}*"):
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=target.parent) as temporary:
        folder, scratch = Path(temporary, target.name), Path(temporary, "scratch")
        folder.mkdir()
        scratch.mkdir()
        build(folder, scratch)
        _publish(folder, target, files)


def _publish(folder: Path, target: Path, files: tuple[str, ...]) -> None:
    """Rename `folder` to `target`; finding a complete `target` there already is success too."""
    if not _is_complete(target, files):
        # Somebody removed files from it: a rename cannot replace a folder that isn't empty.
        shutil.rmtree(target, ignore_errors=True)
    try:
        folder.rename(target)
    except OSError:
        # Not every network file system shares its locks, so another host may have been first.
        if not _is_complete(target, files):
            raise
