"""Names of number formats. Ours are short; torch's are understood wherever one is taken."""

SHORT = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


def short(name: str) -> str:
    """Our name of a number format, given either; any other name as it is."""
    return SHORT.get(name.removeprefix("torch."), name)
