"""Rows of a document in memory: takes them as the store does, and gives them back as it does."""

from collections.abc import Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor

Rows = dict[str, Tensor]


@dataclass
class RowList:
    """The rows of all groups.

    Attributes:
        groups: by group, what was appended, in order.
    """

    groups: dict[str, list[Rows]] = field(default_factory=dict)

    def append(self, group: str, rows: Rows) -> None:
        """Takes more rows of a group."""
        copied = {name: x.detach().cpu().clone() for name, x in rows.items()}
        self.groups.setdefault(group, []).append(copied)

    def rows(self, group: str, names: tuple[str, ...] | None = None) -> Iterator[tuple[int, Rows]]:
        """A group's rows in order, block by block, with the number of the first."""
        first = 0
        for rows in self.groups[group]:
            yield first, {name: rows[name] for name in names or rows}
            first += len(next(iter(rows.values())))

    def take(self, group: str, rows: Tensor, names: tuple[str, ...] | None = None) -> Rows:
        """Chosen rows; their numbers must ascend."""
        assert not (rows.diff() < 0).any()
        return {name: self.whole(group, name)[rows] for name in names or self.groups[group][0]}

    def whole(self, group: str, name: str) -> Tensor:
        """All rows of one tensor."""
        return torch.cat([rows[name] for rows in self.groups[group]])
