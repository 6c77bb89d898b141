"""What a calibration measures and writes, and which files it refuses to replace."""

from dataclasses import asdict, dataclass
from pathlib import Path

from longctx.core.common.errors import LongctxError, UsageError
from longctx.core.common.outputs import STANDARD, Output
from longctx.core.common.regular_files import open_regular
from longctx.core.measure.calibrate.profile_file import HEADER
from longctx.core.measure.calibrate.ranks import MAXSIM, MEASURES
from longctx.core.measure.journal import Record

LENGTH = 8000  # tokens of a document; prefix and question make it about 8,192


@dataclass(frozen=True)
class Amounts:
    """How much is measured.

    Attributes:
        samples: samples of each ranking task.
        haystacks: haystacks for copy scores, with five needles each.
        needles: needles for spans.
        trials: trials of thresholds for spans.
    """

    samples: int
    haystacks: int
    needles: int
    trials: int


# 500 samples of 8,192 tokens are 62 PFLOP with an 8B model: 10 minutes at 100 TFLOP/s.
FULL, QUICK = Amounts(250, 20, 64, 200), Amounts(8, 4, 16, 40)


@dataclass(frozen=True)
class CalibrationPlan:
    """What is measured and written.

    Attributes:
        out: the profile to write, a .yaml file.
        amounts: how much is measured.
        length: tokens of a ranked document.
        seed: seed of all samples.
        rank_by: the measure that chooses REFORM's heads; both are measured.
        printed: the profile goes to standard output, and `out` only names it and the folder.
    """

    out: Path
    amounts: Amounts = FULL
    length: int = LENGTH
    seed: int = 0
    rank_by: str = MAXSIM
    printed: bool = False

    @property
    def profile(self) -> Path:
        """Where the profile goes."""
        return STANDARD if self.printed else self.out

    @property
    def folder(self) -> Path:
        """The folder of the journal and the tables."""
        return self.out.with_name(f"{self.out.stem}.calibration")


def require(wanted: CalibrationPlan) -> None:
    """Refuses wrong options, and refuses to replace a profile that no calibration wrote.

    Raises:
        UsageError: too few samples, no such measure, or a file that must not be replaced.
        LongctxError: the existing file cannot be read.
    """
    out = wanted.out
    if wanted.amounts.samples < 2:
        why = "means have standard errors only from two on"
        raise UsageError(f"cannot rank by {wanted.amounts.samples} samples", why, "Give 2 or more.")
    if wanted.rank_by not in MEASURES:
        known = f"Known: {', '.join(MEASURES)}."
        raise UsageError(f"cannot rank heads by {wanted.rank_by!r}", "", known)
    if out.suffix not in (".yaml", ".yml"):
        raise UsageError(f"cannot write a profile '{out}'", "it is no .yaml file", "Rename it.")
    if not out.parent.is_dir():
        why = f"there is no folder '{out.parent}'"
        raise UsageError(f"cannot write '{out}'", why, "Make it, or choose another --out.")
    if wanted.printed or not out.exists():
        return
    if not out.is_file():  # a pipe or device is written to, not replaced
        Output(out).require_writable()
        return
    if not wanted.folder.is_dir():
        why = f"it is there, and no calibration of it in '{wanted.folder}'"
        raise UsageError(f"will not replace '{out}'", why, "Choose another --out.")
    if not _is_calibrated(out):
        why = "it is no profile that `longctx calibrate` wrote"
        raise UsageError(f"will not replace '{out}'", why, "Choose another --out.")


def require_no_less(wanted: CalibrationPlan, before: Record | None) -> None:
    """Refuses to replace a profile that is based on more measurements.

    Args:
        wanted: what is measured now.
        before: the `Amounts` of the last profile; None: there was none.

    Raises:
        UsageError: that profile exists, and more of something was measured for it.
    """
    now = asdict(wanted.amounts)
    more = [name for name, amount in (before or {}).items() if amount > now[name]]
    if before and more and not wanted.printed and wanted.out.is_file():
        name = more[0]
        raise UsageError(
            f"will not replace '{wanted.out}'",
            f"it was made with {before[name]} {name}, and this run is to have {now[name]}",
            "Choose another --out, or measure as much (--samples, --quick).",
        )


def _is_calibrated(file: Path) -> bool:
    try:
        with open_regular(file) as begun:
            return begun.read(len(HEADER.encode())) == HEADER.encode()
    except OSError as error:
        why = error.strerror or str(error)
        raise LongctxError(f"cannot read '{file}'", why, "Choose another --out.") from error
