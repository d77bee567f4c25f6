"""Every vLLM name that this package uses, imported once.

Nothing else imports vLLM. When a release moves a name, this is the file to open; tests/
test_vllm_api.py says which name.
"""

from vllm import envs
from vllm.entrypoints.cli.serve import ServeSubcommand
from vllm.entrypoints.openai.models.serving import OpenAIServingModels
from vllm.entrypoints.serve.engine.protocol import ErrorResponse
from vllm.entrypoints.serve.utils.fingerprint import get_system_fingerprint
from vllm.entrypoints.serve.utils.sse_keep_alive import with_sse_keep_alive
from vllm.exceptions import (
    GenerationError,
    GracefulHTTPError,
    VLLMClientError,
    VLLMError,
    VLLMServerError,
    VLLMValidationError,
)
from vllm.inputs.engine import tokens_input
from vllm.logger import configure_logging_from_args, init_logger
from vllm.lora.request import LoRARequest
from vllm.platforms import current_platform
from vllm.sampling_params import RequestOutputKind, SamplingParams, StructuredOutputsParams
from vllm.tokenizers.detokenizer_utils import convert_ids_list_to_tokens
from vllm.tracing import (
    SpanKind,
    contains_trace_headers,
    extract_trace_context,
    extract_trace_headers,
    instrument_manual,
)
from vllm.utils.argparse_utils import FlexibleArgumentParser
from vllm.utils.torch_utils import PIN_MEMORY
from vllm.v1.engine.async_llm import AsyncLLM
from vllm.v1.engine.detokenizer import (
    BaseIncrementalDetokenizer,
    FastIncrementalDetokenizer,
    IncrementalDetokenizer,
)
from vllm.v1.engine.exceptions import EngineDeadError
from vllm.v1.structured_output import StructuredOutputManager
from vllm.v1.structured_output.backend_guidance import GuidanceBackend
from vllm.v1.structured_output.backend_lm_format_enforcer import LMFormatEnforcerBackend
from vllm.v1.structured_output.backend_outlines import OutlinesBackend
from vllm.v1.structured_output.backend_types import StructuredOutputBackend, StructuredOutputGrammar
from vllm.v1.structured_output.backend_xgrammar import XgrammarBackend
from vllm.v1.structured_output.utils import strip_speculative_padding

try:
    from vllm.entrypoints.common.startup import cli_env_setup  # since 0.33
except ModuleNotFoundError:
    from vllm.entrypoints.serve.utils.api_utils import cli_env_setup

try:
    from vllm.exceptions import EngineFaultedError  # since 0.34; an engine that may recover
except ImportError:
    EngineFaultedError = EngineDeadError

try:
    from vllm.v1.worker.gpu_input_batch import CachedRequestState  # of runner V1: until 0.33
except ModuleNotFoundError:
    CachedRequestState = None

# vLLM configures the loggers below its own name, so ours is one of them.
logger = init_logger("vllm.completion_v2")


def uses_runner_v2(vllm_config: object) -> bool:
    """Whether the workers run vLLM's model runner V2 (vllm/v1/worker/gpu/ and cpu/).

    Up to 0.33 VllmConfig.use_v2_model_runner says so: True wherever Triton works, unless
    VLLM_USE_V2_MODEL_RUNNER=0 or a feature that V2 lacks. Since 0.34 there is no other.
    """
    return bool(getattr(vllm_config, "use_v2_model_runner", True))


__all__ = [
    "PIN_MEMORY",
    "AsyncLLM",
    "BaseIncrementalDetokenizer",
    "CachedRequestState",
    "EngineDeadError",
    "EngineFaultedError",
    "ErrorResponse",
    "FastIncrementalDetokenizer",
    "FlexibleArgumentParser",
    "GenerationError",
    "GracefulHTTPError",
    "GuidanceBackend",
    "IncrementalDetokenizer",
    "LMFormatEnforcerBackend",
    "LoRARequest",
    "OpenAIServingModels",
    "OutlinesBackend",
    "RequestOutputKind",
    "SamplingParams",
    "ServeSubcommand",
    "SpanKind",
    "StructuredOutputBackend",
    "StructuredOutputGrammar",
    "StructuredOutputManager",
    "StructuredOutputsParams",
    "VLLMClientError",
    "VLLMError",
    "VLLMServerError",
    "VLLMValidationError",
    "XgrammarBackend",
    "cli_env_setup",
    "configure_logging_from_args",
    "contains_trace_headers",
    "convert_ids_list_to_tokens",
    "current_platform",
    "envs",
    "extract_trace_context",
    "extract_trace_headers",
    "get_system_fingerprint",
    "instrument_manual",
    "logger",
    "strip_speculative_padding",
    "tokens_input",
    "uses_runner_v2",
    "with_sse_keep_alive",
]
