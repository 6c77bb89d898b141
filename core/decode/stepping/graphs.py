"""CUDA graphs: steps on a GPU, recorded once and replayed without the host.

Knows nothing of what a step does. It must wait for nothing, and all that it changes must be changed
in place.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache

import torch

from longctx.core.decode.stepping.step import Step

Work = Callable[[], None]

_log = logging.getLogger(__name__)


class Captured:
    """Runs steps as graphs, one for each kind of step.

    The first step of a kind runs as it is, which compiles its kernels; the second is recorded.
    Where that fails, all go on as they are.

    Args:
        step: the step.
        capture: records work and returns what runs it, see `Graphs.capture`.
    """

    def __init__(self, step: Step, capture: Callable[[Work, torch.Generator | None], Work]):
        self._step, self._capture = step, capture
        self._known: set[str] = set()
        self._graphs: dict[str, Work] = {}
        self._refused = False

    @property
    def kinds(self) -> tuple[str, ...]:
        """Kinds of steps that run as graphs."""
        return tuple(self._graphs)

    @property
    def ready(self) -> bool:
        """Whether the next step is recorded: to put it in line takes the host no time."""
        return self._step.kind in self._graphs

    def __call__(self) -> None:
        """Runs the step that comes next."""
        kind = self._step.kind
        if kind is None:
            self._step()
            return
        if kind in self._known and kind not in self._graphs and not self._refused:
            self._record(kind)
        self._graphs.get(kind, self._step)()
        self._known.add(kind)

    def _record(self, kind: str) -> None:
        try:
            self._graphs[kind] = self._capture(self._step, self._step.generator)
        except Exception as error:  # drivers and compilers fail in every way there is
            self._refused = True
            self._step.renew_generator()
            _tell(f"{type(error).__name__}: {error}".splitlines()[0])


@cache
def _tell(why: str) -> None:
    """Logs why steps run as they are; `cache` does it once."""
    _log.info("decoding without CUDA graphs (%s)", why)


class Graphs:
    """Graphs that never run at the same time, and so share the memory of what comes between.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    @torch.inference_mode(False)  # else what generators keep for graphs is only for this mode
    def capture(self, work: Work, generator: torch.Generator | None) -> Work:
        """Records work without doing it.

        Args:
            work: has run before, so that its kernels are compiled. The tensors that it uses must
                stay.
            generator: that it draws from; None: it draws nothing.

        Returns:
            What does the work, in line on the current stream.

        Raises:
            RuntimeError: it waits for the device, or does something else that cannot be recorded;
                nothing has been done then.
        """
        graph = torch.cuda.CUDAGraph()
        here, aside = torch.cuda.current_stream(self._device), _aside(self._device)
        aside.wait_stream(here)
        with torch.cuda.stream(aside), _waits_refused():
            if generator is not None:
                graph.register_generator_state(generator)
            # Other threads may go on with what they do on the device.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        here.wait_stream(aside)
        return graph.replay


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    """A stream to record on: always the same, since libraries keep workspaces for each stream."""
    return torch.cuda.Stream(device)


@contextmanager
def _waits_refused() -> Iterator[None]:
    """Has PyTorch raise an error before it waits for the device.

    The driver would refuse it too, but then the recording cannot be ended in order.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # That this is a prototype; that a recording which stops at once is empty.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
