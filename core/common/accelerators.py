"""Whether this computer certainly has no GPU that torch would choose, without importing torch."""

import os
import sys

# What the drivers of GPUs make on Linux: NVIDIA's, AMD's, and that of Windows' own Linux.
MADE = ("/dev/nvidiactl", "/dev/nvidia0", "/proc/driver/nvidia", "/dev/kfd", "/dev/dxg")


def has_none() -> bool:
    """True where there is none; False where there is one, or it cannot be told."""
    return sys.platform.startswith("linux") and not any(map(os.path.exists, MADE))
