import pandas as pd

from multigpu.report import failures, fault_table
from tests.factory import make_record


def test_a_fault_is_survived_where_its_launch_has_a_later_record() -> None:
    at = "2026-01-02T03:04:{:02}+00:00".format
    records = [
        make_record(repeat=number, status=status, launch_id=launch, measured_at=at(second))
        for number, (status, launch, second) in enumerate(
            [("ok", "a.0", 1), ("out_of_memory", "a.0", 3), ("ok", "a.1", 8), ("out_of_memory", "b.0", 5), ("failed", "a.1", 20)]
        )
    ]
    kills = pd.DataFrame({"victim": ["agent", "worker", "worker"], "recovered_s": [9.0, 2.0, 4.0]})
    planted = pd.DataFrame({"fault": ["a rank that stops"] * 2, "recovered_s": [30.0, float("nan")]})
    table = fault_table(kills, failures(records), planted).set_index("fault")
    assert table.loc["GPU, planted: a rank that stops", ["tried", "survived", "last", "median_s"]].tolist() == [2, 1, 1, 30.0]
    assert table.loc["GPU: out_of_memory", ["tried", "survived", "last", "median_s"]].tolist() == [2, 1, 1, 5.0]
    assert table.loc["GPU: failed", ["tried", "survived", "last"]].tolist() == [1, 0, 1]
    assert table.loc["CPU: a killed worker", ["tried", "survived", "median_s", "most_s"]].tolist() == [2, 2, 3.0, 4.0]
