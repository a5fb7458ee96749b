"""Records of a program that is another one now under the same Run: they stay as they are, and are not compared with today's."""

from __future__ import annotations

from multigpu.record import Record

WHOLE_SINCE = "2026-11-22T20:40:45+00:00"
"""Until then torch.compile was given the blocks of an image model one by one: its first convolution and its classifier, all of VGG and
AlexNet, ran eagerly."""


def compiled_in_blocks(record: Record) -> bool:
    """Whether this is a compiled step of an image model whose blocks alone were compiled."""
    return record.run.workload == "cnn" and "compiled" in record.run.execution and record.measured_at < WHOLE_SINCE
