"""What is checked of every comparison of a user's model."""

import pytest

from multigpu.user_model.result import Result


def check_placements(result: Result, within: float) -> None:
    """Check that each placement equals one process, to so much in fp64, that its causes add up to
    its step, and that it moves the bytes that its row predicts.
    """
    for name in result.names:
        compared = result.equivalence(name)
        assert compared is not None and compared.precision == "fp64" and compared.holds
        assert compared.distance < within
        causes = result.why_not_scaling(name)
        assert causes["ms"].min() >= 0 and causes["ms"].sum() == pytest.approx(
            1e3 * result[name].row["fed_step_s"]
        )
    for record in result.records:
        assert (
            record.measurement is not None
            and record.measurement.moved_bytes == record.measurement.predicted_bytes
        )
        assert not [flag for flag in record.measurement.flags if "bytes" in flag]
