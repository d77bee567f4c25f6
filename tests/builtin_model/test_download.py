"""adapter/builtin_model/download.py: fetched with pip, and refused where it is another file."""

import hashlib
import importlib.metadata
import os
import zipfile
from pathlib import Path

import pytest

from adapter.builtin_model import download, model
from adapter.builtin_model.reporting import DefaultModelError
from tests.builtin_model.files import ignore_report, random_weights, write_gguf, write_wheel


@pytest.fixture
def pip_finds_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only place where pip looks: no index, no settings of the user's."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    monkeypatch.delenv("PIP_EXTRA_INDEX_URL", raising=False)
    return folder


@pytest.mark.usefixtures("no_tokenizer")
class TestFetch:
    @pytest.fixture
    def content(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
        """A small GGUF file's bytes, set up to be the ones expected."""
        write_gguf(tmp_path / "small.gguf", random_weights())
        content = (tmp_path / "small.gguf").read_bytes()
        monkeypatch.setattr(download, "GGUF_SHA256", hashlib.sha256(content).hexdigest())
        return content

    def test_from_pip_to_a_folder_with_nothing_left_over(
        self, cache: Path, pip_finds_in: Path, content: bytes
    ) -> None:
        """pip's wheel becomes the model's folder, and only that and its lock stay."""
        write_wheel(pip_finds_in, content)
        folder = model.ensure_default_model(ignore_report)
        assert folder == cache / "models-1" / "smollm2-135m-instruct"
        assert {file.name for file in folder.iterdir()} == set(model.MODEL_FILES)
        assert {file.name for file in folder.parent.iterdir()} == {
            "smollm2-135m-instruct",
            ".smollm2-135m-instruct.lock",
        }

    def test_pip_failure_is_one_line_with_its_reason(self, cache: Path, pip_finds_in: Path) -> None:
        """Where pip fails, one line tells its reason."""
        with pytest.raises(DefaultModelError, match=r"pip could not .* No matching") as failure:
            model.ensure_default_model(ignore_report)
        assert "\n" not in str(failure.value)

    def test_no_pip(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        """Without pip the message says what to install."""

        def missing(name: str) -> None:
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr("importlib.metadata.distribution", missing)
        with pytest.raises(DefaultModelError, match="install pip"):
            download.fetch_gguf(tmp_path, ignore_report)

    def test_other_content_is_refused(
        self, cache: Path, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A file with another checksum is refused, and nothing of it stays."""
        wheel = write_wheel(tmp_path, content + b"tampered")
        monkeypatch.setattr(download, "_download_wheel", lambda *_: wheel)
        with pytest.raises(DefaultModelError, match=r"sha256 .* refused"):
            model.ensure_default_model(ignore_report)
        assert [file.name for file in (cache / "models-1").iterdir()] == [
            ".smollm2-135m-instruct.lock"
        ]

    @pytest.mark.parametrize("content", [b"not a zip file", None], ids=["no zip", "no such file"])
    def test_another_wheel_is_refused(self, content: bytes | None, tmp_path: Path) -> None:
        """What is no wheel, or has no such file, is refused by its name."""
        wheel = tmp_path / "some.whl"
        if content is None:
            zipfile.ZipFile(wheel, "w").close()
        else:
            wheel.write_bytes(content)
        with pytest.raises(DefaultModelError, match=r"some\.whl is not the wheel"):
            download._extract_gguf(wheel, tmp_path)

    @pytest.mark.parametrize("tampered", [False, True])
    def test_installed_package_is_used_only_when_it_is_the_right_one(
        self, tampered: bool, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """An installed package's file is taken where its checksum is right."""
        package = tmp_path / "site" / download.GGUF_PACKAGE
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / download.GGUF_FILE).write_bytes(content + b"x" * tampered)
        monkeypatch.syspath_prepend(package.parent)
        wheel = write_wheel(tmp_path, content)
        monkeypatch.setattr(download, "_download_wheel", lambda *_: wheel)
        used = download.fetch_gguf(tmp_path, ignore_report)
        assert used.parent == (tmp_path if tampered else package)
