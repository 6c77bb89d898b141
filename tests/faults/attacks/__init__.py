"""Attacks on real processes, disks and connections, each with its judgement.

An attack is `f(world, chance, size)`: a new world, random numbers, and whether it is a SMALL one
(for the everyday suite) or a LARGE one. It raises Wrong, or Skipped where the machine lacks
something.
"""

from collections.abc import Callable

from attacks import claims, clients, clocks, disks, kills, stalled

ATTACKS: dict[str, Callable] = {
    "rm": kills.removals,
    "pull": kills.pulls,
    "full": disks.full,
    "read_only": disks.read_only,
    "clocks": clocks.wrong,
    "locks": claims.dead_locks,
    "fence": claims.stopped_writer,
    "mcp_lines": clients.long_lines,
    "mcp_paths": clients.paths,
    "connections": stalled.connections,
}
