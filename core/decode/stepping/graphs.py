"""CUDA graphs: steps on a GPU, recorded once and replayed without the host.

Independent of what a step does. A step must not wait for the device, and must change everything in
place.
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
    """Runs steps as graphs, one per kind of step.

    The first step of a kind runs directly, which compiles its kernels; the second is recorded.
    If recording fails, all steps run directly.

    Args:
        step: the step.
        capture: records work and returns a function that runs it, see `Graphs.capture`.
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
        """Whether the next step is recorded, so that launching it takes the host no time."""
        return self._step.kind in self._graphs

    def __call__(self) -> None:
        """Runs the next step."""
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
        except Exception as error:  # drivers and compilers fail in every possible way
            self._refused = True
            self._step.renew_generator()
            _tell(f"{type(error).__name__}: {error}".splitlines()[0])


@cache
def _tell(why: str) -> None:
    """Logs why steps run directly; `cache` makes it happen once."""
    _log.info("decoding without CUDA graphs (%s)", why)


class Graphs:
    """Graphs that never run at the same time, and so share memory for intermediate results.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device):
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    @torch.inference_mode(False)  # else the generator's graph state works only in this mode
    def capture(self, work: Work, generator: torch.Generator | None) -> Work:
        """Records work without running it.

        Args:
            work: has run before, so that its kernels are compiled. The tensors it uses must stay
                allocated.
            generator: what it draws from; None: it draws nothing.

        Returns:
            A function that runs the work on the current stream.

        Raises:
            RuntimeError: the work waits for the device or does something else that cannot be
                recorded; nothing has run.
        """
        graph = torch.cuda.CUDAGraph()
        here, aside = torch.cuda.current_stream(self._device), _aside(self._device)
        aside.wait_stream(here)
        with torch.cuda.stream(aside), _waits_refused():
            if generator is not None:
                graph.register_generator_state(generator)
            # Other threads may continue to use the device.
            graph.capture_begin(pool=self._pool, capture_error_mode="thread_local")
            try:
                work()
            finally:
                graph.capture_end()
        here.wait_stream(aside)
        return graph.replay


def recorder() -> Callable[[torch.device, Work], Work]:
    """What records work of any device, each with memory of its own: see `Graphs.capture`.

    The work draws nothing.
    """
    graphs = cache(Graphs)
    return lambda device, work: graphs(device).capture(work, None)


@cache
def _aside(device: torch.device) -> torch.cuda.Stream:
    """The stream to record on; always the same, as libraries keep workspaces per stream."""
    return torch.cuda.Stream(device)


@contextmanager
def _waits_refused() -> Iterator[None]:
    """Makes PyTorch raise an error instead of waiting for the device.

    The driver would refuse too, but then the recording could not be ended properly.
    """
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        # Warnings that this is a prototype, and that an interrupted recording is empty.
        warnings.simplefilter("ignore")
        torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode(before)
