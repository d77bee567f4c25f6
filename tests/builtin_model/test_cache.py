"""adapter/builtin_model/cache.py: where models are cached, and that they are whole."""

import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from adapter.builtin_model import cache
from adapter.builtin_model.reporting import DefaultModelError
from tests.builtin_model.files import ignore_report


class TestCacheFolder:
    def test_override_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The package's own variable counts more than XDG's."""
        monkeypatch.setenv("COMPLETION_V2_CACHE", "/somewhere")
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        assert cache.cache_folder() == Path("/somewhere")

    def test_xdg(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Else the cache is beside the user's other caches."""
        monkeypatch.delenv("COMPLETION_V2_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        assert cache.cache_folder() == Path("/xdg/vllm-completion-v2")

    @pytest.mark.parametrize("xdg", ["", "relative/folder", None])
    def test_home(self, xdg: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        """Without an absolute XDG_CACHE_HOME it is in the home folder."""
        monkeypatch.delenv("COMPLETION_V2_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", "/home/someone")
        if xdg is not None:
            monkeypatch.setenv("XDG_CACHE_HOME", xdg)
        assert cache.cache_folder() == Path("/home/someone/.cache/vllm-completion-v2")


class TestEnsureFolder:
    """One complete folder, whoever else builds it and whoever is killed while building."""

    def ensure(
        self, target: Path, build: Callable[[Path], None], report: Callable[[str], None]
    ) -> Path:
        return cache.ensure_folder(
            target, ("a", "b"), lambda folder, _scratch: build(folder), report
        )

    @staticmethod
    def fill(folder: Path) -> None:
        (folder / "a").write_text("a")
        (folder / "b").write_text("b")

    def test_built_once(self, tmp_path: Path) -> None:
        """A complete folder is not built again."""
        target = tmp_path / "deep" / "target"
        assert self.ensure(target, self.fill, ignore_report) == target

        def fail(_folder: Path) -> None:
            raise AssertionError("built again")

        assert self.ensure(target, fail, ignore_report) == target

    @pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("")])
    def test_incomplete_folder_is_rebuilt(
        self, tmp_path: Path, damage: Callable[[Path], None]
    ) -> None:
        """A folder that lacks a file, or has an empty one, is built again."""
        target = tmp_path / "target"
        self.ensure(target, self.fill, ignore_report)
        damage(target / "b")
        self.ensure(target, self.fill, ignore_report)
        assert (target / "b").read_text() == "b"

    def test_failed_build_leaves_nothing(self, tmp_path: Path) -> None:
        """Of a build that fails nothing stays but the lock."""

        def fail(folder: Path) -> None:
            self.fill(folder)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.ensure(tmp_path / "target", fail, ignore_report)
        assert [file.name for file in tmp_path.iterdir()] == [".target.lock"]

    def test_racing_callers_wait_for_one_builder(self, tmp_path: Path) -> None:
        """Of callers at once one builds, and the others wait for it."""
        target, callers = tmp_path / "target", 3
        builds: list[Path] = []
        others_wait = threading.Semaphore(0)

        def report(message: str) -> None:
            if "waiting" in message:
                others_wait.release()

        def build(folder: Path) -> None:
            builds.append(folder)
            for _ in range(callers - 1):
                assert others_wait.acquire(timeout=10)
            assert not target.exists()
            self.fill(folder)

        with ThreadPoolExecutor(callers) as pool:
            results = list(pool.map(lambda _: self.ensure(target, build, report), range(callers)))
        assert results == [target] * callers
        assert len(builds) == 1

    def test_losing_a_race_without_a_shared_lock_is_fine(self, tmp_path: Path) -> None:
        """A complete folder that another host put there first is taken as it is."""
        target = tmp_path / "target"

        def build(folder: Path) -> None:
            self.fill(folder)
            target.mkdir()
            self.fill(target)
            (target / "first").touch()

        assert self.ensure(target, build, ignore_report) == target
        assert (target / "first").exists()

    def test_killed_build_is_not_taken_as_complete_and_is_swept_up(self, tmp_path: Path) -> None:
        """A killed build is no folder, and the next one clears it away."""
        target = tmp_path / "target"
        program = """if True:
            import pathlib, sys, time
            from adapter.builtin_model import cache
            def build(folder, scratch):
                (folder / "a").write_text("a")
                (folder / "b").write_text("half")
                print("building", flush=True)
                time.sleep(60)
            cache.ensure_folder(pathlib.Path(sys.argv[1]), ("a", "b"), build, print)
        """
        command = [sys.executable, "-c", program, str(target)]
        root = Path(__file__).parents[2]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=root) as process:
            assert process.stdout is not None
            assert process.stdout.readline() == "building\n"
            process.send_signal(signal.SIGKILL)
        assert not target.exists()
        assert list(tmp_path.glob(".target.building-*"))
        self.ensure(target, self.fill, ignore_report)
        assert (target / "b").read_text() == "b"
        assert not list(tmp_path.glob(".target.building-*"))

    def test_file_system_refusal_names_the_way_out(self, tmp_path: Path) -> None:
        """Where the cache cannot be written the message names its variable."""
        (tmp_path / "file").touch()
        with pytest.raises(DefaultModelError, match="COMPLETION_V2_CACHE"):
            self.ensure(tmp_path / "file" / "target", self.fill, ignore_report)
