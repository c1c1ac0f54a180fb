"""A real inference server, llama.cpp's own, with a language model of 100 kB that is made here.

The model has random weights and writes nonsense, but grammars, templates, tokens, caches and errors are the real
ones: held to a schema, it writes JSON that fits. `python -m tests.services.llama MODEL PORT` runs it.
"""

from __future__ import annotations

import importlib.util
import random
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.services.ports import Port
from tests.services.process import Child, ServiceError

PACKAGE: Final = "xllamacpp==2026.10.11549"
API_KEY: Final = "key-of-the-tests"
CONTEXT: Final = 2_048
_WIDTH: Final = 32
_ALIGN: Final = 32
# One token a byte, and one a printable character: the space is U+2581, as in SentencePiece.
_TOKENS: Final = (
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "\u2581",
    *map(chr, range(33, 127)),
)
_TEMPLATE: Final = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:\n{% endif %}"
)


def available() -> bool:
    """Tell whether llama.cpp is installed (the package xllamacpp)."""
    return importlib.util.find_spec("xllamacpp") is not None


def make_model(path: Path) -> None:
    """Write a model of one layer with random weights in the GGUF format, version 3; always the same."""
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (_WIDTH, len(_TOKENS)),
        "output_norm.weight": (_WIDTH,),
        "output.weight": (_WIDTH, len(_TOKENS)),
        "blk.0.attn_norm.weight": (_WIDTH,),
        "blk.0.ffn_norm.weight": (_WIDTH,),
    }
    for name in ("attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"):
        shapes[f"blk.0.{name}.weight"] = (_WIDTH, _WIDTH)
    chance = random.Random(0)
    entries, weights = b"", b""
    for name, shape in shapes.items():
        entries += _string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, len(weights))
        size = shape[0] * (shape[1] if len(shape) > 1 else 1)
        weights += _padded(array("f", [chance.gauss(0, 1) for _ in range(size)]).tobytes())
    metadata = _metadata()
    head = b"GGUF" + struct.pack("<IQQ", 3, len(shapes), len(metadata))
    head += b"".join(_string(key) + _value(value) for key, value in metadata.items())
    path.write_bytes(_padded(head + entries) + weights)


def _metadata() -> Mapping[str, Any]:
    return {
        "general.architecture": "llama",
        "llama.block_count": 1,
        "llama.context_length": CONTEXT,
        "llama.embedding_length": _WIDTH,
        "llama.feed_forward_length": _WIDTH,
        "llama.attention.head_count": 2,
        "llama.attention.head_count_kv": 2,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "llama.vocab_size": len(_TOKENS),
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": list(_TOKENS),
        "tokenizer.ggml.scores": [0.0] * len(_TOKENS),
        # 2 unknown, 3 control, 6 byte, 1 normal
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * 95],
        "tokenizer.ggml.unknown_token_id": 0,
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.add_space_prefix": False,
        "tokenizer.chat_template": _TEMPLATE,
    }


def _string(text: str) -> bytes:
    raw = text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value: Any) -> bytes:
    """Encode a value with its type: 4 uint32, 5 int32, 6 float32, 7 bool, 8 string, 9 array."""
    match value:
        case bool():
            return struct.pack("<IB", 7, value)
        case int():
            return struct.pack("<II", 4, value)
        case float():
            return struct.pack("<If", 6, value)
        case str():
            return struct.pack("<I", 8) + _string(value)
    kind = {str: 8, float: 6, int: 5}[type(value[0])]
    items = b"".join(map(_string, value)) if kind == 8 else struct.pack(f"<{len(value)}{'if'[kind - 5]}", *value)
    return struct.pack("<IIQ", 9, kind, len(value)) + items


def _padded(raw: bytes) -> bytes:
    return raw + b"\0" * (-len(raw) % _ALIGN)


@contextmanager
def llama_server(folder: Path) -> Iterator[str]:
    """Run the server in a process of its own until the block ends; gives its address."""
    model, port = folder / "tiny.gguf", Port()
    make_model(model)
    address = f"http://127.0.0.1:{port.number}"
    command = [sys.executable, "-m", "tests.services.llama", str(model), str(port.number)]
    child = Child(command, folder / "llama.log")
    try:
        _wait(child, address)
        yield address
    finally:
        child.stop()
        port.release()


def _wait(child: Child, address: str, seconds: float = 60.0) -> None:
    limit = time.monotonic() + seconds
    while time.monotonic() < limit and child.alive:
        try:
            with urllib.request.urlopen(f"{address}/health", timeout=5):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise ServiceError(f"llama.cpp did not start:\n{child.tail()}")


def _serve(model: str, port: int) -> None:
    import xllamacpp

    settings = xllamacpp.CommonParams()
    settings.model.path = model
    settings.port = port
    settings.n_ctx = CONTEXT
    settings.n_parallel = 1
    settings.cpuparams.n_threads = 1
    settings.api_keys = [API_KEY]
    server = xllamacpp.Server(settings)
    print(server.listening_address, flush=True)
    threading.Event().wait()


if __name__ == "__main__":
    _serve(sys.argv[1], int(sys.argv[2]))
