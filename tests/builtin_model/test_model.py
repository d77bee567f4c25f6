"""adapter/builtin_model/model.py: the models themselves; fetched only where marked live."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from adapter.builtin_model import model
from adapter.builtin_model.cache import model_folder
from tests.builtin_model.files import ignore_report


class TestTinyModel:
    def test_is_small_and_keeps_the_tokenizer(self, cache: Path) -> None:
        """The tiny model has the built-in one's files but the weights, and its own shape."""
        source = model_folder(model.MODEL_NAME)
        source.mkdir(parents=True)
        for name in model.MODEL_FILES:
            (source / name).write_text('{"eos_token_id": 2, "hidden_size": 576}')
        (source / "chat_template.jinja").write_text("template")
        folder = model.ensure_tiny_model(ignore_report)
        config = json.loads((folder / "config.json").read_text())
        assert config == {"eos_token_id": 2, **model.TINY_SHAPE}
        assert (folder / "chat_template.jinja").read_text() == "template"
        assert not (folder / "model.safetensors").exists()


def test_import_is_light() -> None:
    """Importing the package's face loads none of the libraries that convert."""
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
    return model.ensure_default_model()


@pytest.mark.live
class TestRealModel:
    def test_transformers_completes_greedily(self, real_model: Path) -> None:
        """transformers loads all weights, and they know what they should."""
        from transformers import AutoModelForCausalLM, AutoTokenizer

        tokenizer = AutoTokenizer.from_pretrained(real_model)
        llama, loading = AutoModelForCausalLM.from_pretrained(
            real_model, dtype=torch.float32, output_loading_info=True
        )
        assert not loading["missing_keys"]
        assert not loading["unexpected_keys"]
        for prompt, expected in {
            "The capital of France is": " Paris.",
            "1, 2, 3, 4,": " 5, 6, 7, 8, 9, 10",
        }.items():
            inputs = tokenizer(prompt, return_tensors="pt")
            tokens = llama.generate(**inputs, max_new_tokens=20, do_sample=False)[0]
            text = tokenizer.decode(tokens[inputs.input_ids.shape[1] :])
            assert text.startswith(expected)

    def test_tokenizer_and_special_tokens(self, real_model: Path) -> None:
        """The tokenizer has its special tokens, its chat template and its splitting of digits."""
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
        """The tiny model runs in transformers and has the same vocabulary."""
        from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

        vocabulary = len(AutoTokenizer.from_pretrained(real_model))
        tiny = model.ensure_tiny_model()
        llama = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(tiny))
        inputs = AutoTokenizer.from_pretrained(tiny)("Hello", return_tensors="pt")
        assert llama(**inputs).logits.shape == (1, 1, vocabulary)
        assert llama.num_parameters() < 4_000_000
