"""What a pointing reader learns by.

For each passage, where the answer starts and ends, or that it is not there (its first token); and
over all passages of a question together, in which of them it stands: shared normalisation (Clark
and Gardner, ACL 2018, section 3).
"""

import torch
from torch import Tensor

from longctx.profiles.recipe.reader.packing import Step

TAUGHT = 0.7  # how much a teacher counts beside the answers themselves


def log_sums(values: Tensor, groups: Tensor, count: int) -> Tensor:
    """The logarithm of the sum of exponentials of each group.

    Args:
        values: (N,) float32.
        groups: (N,) int64, below `count`; -1: in none.

    Returns:
        (count,) float32; a very small number where a group is empty.
    """
    own = torch.where(groups < 0, count, groups)
    most = values.new_full((count + 1,), -1e4).scatter_reduce(0, own, values.detach(), "amax")
    sums = values.new_zeros(count + 1).index_add(0, own, (values - most[own]).exp())
    return (most + sums.clamp(min=1e-30).log())[:count]


def loss(logits: Tensor, step: Step, teacher: Tensor | None = None) -> Tensor:
    """The mean over passages and questions, of starts and ends.

    Args:
        logits: (rows, ROW, 2) float32.
        step: what was read.
        teacher: another reader's logits for the same step, which are followed too.
    """
    flat = logits.view(-1, 2)
    total = flat.new_zeros(())
    asked = int(step.asked.max()) + 1
    for side, gold in ((0, step.starts), (1, step.ends)):
        own = flat[:, side]
        each = log_sums(own, step.items, len(step.firsts)) - own[gold]
        there = gold != step.firsts
        together = log_sums(own, step.questions, asked)[step.asked[there]] - own[gold[there]]
        hard = each.mean() + together.sum() / max(1, len(together))
        if teacher is not None:
            hard = (1 - TAUGHT) * hard + TAUGHT * _followed(own, teacher.view(-1, 2)[:, side], step)
        total = total + hard
    return total / 2


def _followed(own: Tensor, taught: Tensor, step: Step) -> Tensor:
    """How far the places' probabilities are from the teacher's, by passage and by question."""
    asked = int(step.asked.max()) + 1
    far = own.new_zeros(())
    for groups, count in ((step.items, len(step.firsts)), (step.questions, asked)):
        inside = groups >= 0
        of = groups[inside]
        mine = own[inside] - log_sums(own, groups, count)[of]
        theirs = taught[inside] - log_sums(taught, groups, count)[of]
        far = far + (theirs.exp() * (theirs - mine)).sum() / count
    return far
