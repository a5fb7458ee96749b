"""The page on synchrony: its frame, figures and tables on planted Records, and what they say where there are none."""

from __future__ import annotations

import math
import re

import pandas as pd
import pytest

from multigpu.analysis import synchrony_page as page
from multigpu.analysis.figure_synchrony import _cancelling, figure_k, figure_ratio, figure_real, figure_runtime, real_frame
from multigpu.analysis.figure_synchrony_error import ends_sentence, figure_error, figure_rates, figure_staleness
from multigpu.analysis.picture import Picture, svg_text
from multigpu.analysis.synchrony import curves_frame, ratio_frame, staleness_frame, synchrony_frame
from multigpu.analysis.synchrony_devices import devices_sentence
from multigpu.synchrony.problems import LinearRegression
from multigpu.synchrony.record import SynchronyRecord
from multigpu.synchrony.trained_models import TrainedModel
from tests.analysis.test_large_batch import on_device
from tests.synchrony.planted import averaged, record, records

RATE = {"kind": "constant", "rate": 0.1}
LINEAR, DIGITS = {"kind": "linear_regression"}, {"kind": "digits"}
SIX = (("sync", None), ("async", None), *((name, 4) for name in ("k_sync", "k_batch_sync", "k_async", "k_batch_async")))
LEAST = LinearRegression().build().best_loss


def runtimes() -> list[SynchronyRecord]:
    """Every protocol at P = 8 and 16 with K = P/2, sync 3 and async 0.125 an update; every K at 16."""
    made = []
    for p in (8, 16):
        for name, k in SIX:
            time_s = {"sync": 3.0, "async": 1 / p}.get(name, 0.5)
            made += (
                records(name, p, update_time_s=time_s)
                if k is None
                else [record(name, p, half, update_time_s=time_s) for half in {p // 2, *((1, 16) if p == 16 else ())}]
            )
    return made


def trained() -> list[SynchronyRecord]:
    """Curves on two problems: async is there at once and ends at 10 times sync's loss above the least."""
    made = []
    for name, k in SIX:
        tail = 0.1 if name == "async" else 0.01
        for seed in range(2):
            common = {"rate": RATE, "time_s": 40.0, "seed": seed}
            made.append(
                record(
                    name,
                    8,
                    k,
                    problem=LINEAR,
                    losses=(LEAST + 3, LEAST + (tail if k or tail == 0.1 else 3), *(LEAST + tail,) * 7),
                    **common,
                )
            )
            made.append(record(name, 8, k, problem=DIGITS, losses=(2.0,) * 9, errors=(0.9, *(0.1,) * 8), **common))
    return made


def test_the_frame_has_units_theory_and_errors_above_the_least() -> None:
    row = synchrony_frame([record("k_async", 10, 5, update_time_s=0.7, staleness=1.0)]).iloc[0]
    assert (row["workers"], row["gradients"], row["gradients_per_update"], row["mean_s"]) == (10, 5, 5, 1.0)
    assert row["gradient_time_s"] == pytest.approx(0.14) and row["staleness_of_n_k"] == pytest.approx(0.5)
    assert row["theory_s"] == pytest.approx(sum(1 / i for i in range(6, 11))) and row["staleness_theory"] == 1.0
    # twenty parts, 1% below and above in turn: s is 1% times the root of 20/19
    low, high = row["update_time_low_s"] / 0.7, row["update_time_high_s"] / 0.7
    assert low == pytest.approx(1 - 2.093 * 0.010260 / math.sqrt(20), abs=1e-6) and high == pytest.approx(2 - low)
    # of 9 points the last quarter is 2; 5% of 40 s is past the first point
    curve = synchrony_frame(
        [record("sync", 8, problem=LINEAR, rate=RATE, time_s=40.0, losses=(9.0, *(LEAST + 1,) * 6, *(LEAST + 0.5,) * 2))]
    )
    assert curve["excess_last"].iloc[0] == pytest.approx(0.5) and curve["excess_early"].iloc[0] == pytest.approx(1.0)


def test_a_diverged_or_failed_run_has_no_figure_that_could_decide() -> None:
    diverged = record("async", 8, problem=LINEAR, rate=RATE, time_s=40.0, losses=(1.0, math.inf, math.nan))
    failed = diverged.model_copy(update={"result": None, "status": "failed"})
    frame = synchrony_frame([diverged, failed])
    assert not math.isfinite(frame["loss_last"].iloc[0]) and pd.isna(frame["loss_last"].iloc[1])


def test_runtimes_and_their_findings() -> None:
    frame = synchrony_frame(runtimes())
    picture = figure_runtime(frame)
    assert picture.finding == "At P = 16 and exponential times, an update of sync takes 48 times as long as one of async"
    assert "K = P/2" in picture.caption and set(picture.data["protocol"]) == {name for name, _ in SIX}
    assert set(picture.data["workers"]) == {8, 16} and len(picture.data) == 12
    samples = figure_runtime(frame, "gradient_time_s")
    assert "a gradient of sync takes 3 times as long" in samples.finding
    values = samples.data.set_index(["protocol", "workers"])["over_mean"]
    assert values["sync", 16] == pytest.approx(3.0) and values["async", 16] == pytest.approx(1.0)
    ratios = ratio_frame(frame).set_index(["workers", "unit"])
    assert ratios.loc[(16, "update"), "ratio"] == pytest.approx(48) and ratios.loc[(16, "sample"), "ratio"] == pytest.approx(3)
    assert (ratios["low"] < ratios["ratio"]).all() and (ratios["n"] == 5).all()
    assert figure_ratio(frame).finding == ""
    assert set(figure_k(frame).data["gradients_per_update"]) == {1, 8, 16}
    assert "2.72" in page.ratio_table(frame).html


def test_a_caption_says_where_cancelling_costs_nothing() -> None:
    def of(times: dict[str, float]) -> pd.DataFrame:
        return pd.DataFrame(
            [{"protocol": name, "gradients_per_update": k, "gradient_time_s": time * k} for name, time in times.items() for k in (1, 8)]
        )

    alike = _cancelling(of({"k_sync": 1.0, "k_async": 1.05, "k_batch_sync": 2.0, "k_batch_async": 2.0}))
    assert "K-sync on K-async and K-batch-sync on K-batch-async lies within 10%" in alike
    assert _cancelling(of({"k_sync": 1.0, "k_async": 1.05, "k_batch_sync": 2.0, "k_batch_async": 1.0})) == "", "time was thrown away"
    assert _cancelling(of({"k_sync": 1.0})) == ""


def test_where_async_ends_is_computed_for_every_problem() -> None:
    def line(problem: str, protocol: str, low: float, high: float) -> pd.DataFrame:
        return pd.DataFrame({"problem": problem, "protocol": protocol, "time_s": [0.0, 100.0], "low": [9, low], "high": [9.5, high]})

    lines = [line("linear regression, 10 features", "async", 3, 4), line("linear regression, 10 features", "sync", 1, 2)]
    lines += [line("digits, batch 32", "async", 1, 2), line("digits, batch 32", "sync", 3, 4)]
    lines += [line("planted teacher", "async", 1, 3), line("planted teacher", "sync", 2, 4)]
    said = ends_sentence(pd.concat(lines))
    assert said == "When the time is up async lies above sync on linear regression, still below sync on digits."
    assert ends_sentence(pd.concat(lines[4:])) is None and ends_sentence(pd.DataFrame()) is None


def test_the_answer_needs_intervals_that_part() -> None:
    at_20 = [*records("sync", 20, update_time_s=3.6), *records("async", 20, update_time_s=0.05)]
    text = page.answer(synchrony_frame([*at_20, *trained()])).html
    assert (
        "In the simulator, where network and server take no time" in text
        and "<strong>3.60</strong>" in text
        and "counted by updates, as 002 does, it is 72 times" in text
    )
    assert "<strong>10</strong> times as far above" in text
    lines = figure_error(curves_frame(trained()), {"linear regression, 10 features, batch 32": LEAST}).data
    assert "When the time is up async lies above sync on linear regression." in page.answer(synchrony_frame(trained()), (), lines).html
    alike = [r for r in trained() if r.experiment.protocol != "async"]
    assert "floor" not in page.answer(synchrony_frame(alike)).html
    assert "No Record supports an answer" in page.answer(synchrony_frame([])).html


def test_the_answer_names_what_devices_did_beside_the_simulator() -> None:
    """Sync applies 2 gradients in 0.2 s and late in 0.5 s, async one in 0.08 and 0.1: 12.5 over 10, and 10 over 4."""
    sync, late = on_device("sync", None, 0.2), on_device("sync", None, 0.5, 0.3)
    made = [sync, on_device("async", None, 0.08), late, on_device("async", None, 0.1, 0.3), on_device("async", None, 0.01, server="cpu")]
    said = devices_sentence(made)
    assert said == (
        f"On {sync.machine.name} with 2 workers, images (tiny ResNet), batch 32, async applies **1.25** times as many gradients a second "
        "as sync and **2.50** times with the last one 300 ms late (one run each, the server on the host)."
    )
    assert "<strong>2.50</strong>" in page.answer(synchrony_frame([]), made).html
    assert devices_sentence(made[:1]) is None and devices_sentence([]) is None


def test_figures_have_three_digits_and_seeds_are_counted() -> None:
    """Twenty workers of five seeds and 256 of two; 256 H(256) is 1,567.8."""
    made = [*records("sync", 20, update_time_s=3.6), *records("async", 20, update_time_s=0.05)]
    made += [
        record(name, 256, update_time_s=s, seed=n, noise=1 + n / 100) for name, s in (("sync", 157.1234), ("async", 0.1)) for n in (0, 1)
    ]
    html = page.ratio_table(synchrony_frame(made)).html
    rows = [re.findall(r"<td[^>]*>([^<]*)</td>", row) for row in html.split("<tr>")]
    by = {tuple(row[:2]): row for row in rows if row}
    assert by["update", "256"][2] == "1,571" and by["update", "256"][4:7] == ["1,568", "1,420", "2"]
    assert (
        by["update", "20"][2] == "72.0" and by["update", "20"][4:] == ["72.0", "59.9", "5", "about 100"] and by["sample", "20"][2] == "3.60"
    )
    assert "five" not in html and "Marks: 2 to 5 seeds" in figure_ratio(synchrony_frame(made)).caption
    common = {"problem": DIGITS, "rate": RATE, "losses": (1.0,) * 4, "errors": (0.1,) * 4}
    twins = [record(name, 8, 2, seed=seed, **common) for name in ("k_sync", "k_batch_sync") for seed in range(3)]
    assert "means over 3 seeds" in page.twins_table(synchrony_frame(twins)).html


def test_staleness_marks_the_mean_and_n_over_k() -> None:
    made = [*records("k_batch_async", 30, 15, staleness=1.94), *records("k_async", 30, 15, staleness=1.0)]
    picture = figure_staleness(staleness_frame(made))
    assert picture.finding == "With 30 learners the mean staleness of n-softsync is 0.966 to 0.974 of N/K"
    shares = picture.data[picture.data["protocol"] == "k_async"]["share"]
    assert list(shares) == pytest.approx([0.25, 0.5, 0.25])
    assert "N/K = 2" in svg_text(picture, "x") and "exact 1.93" in svg_text(picture, "x")


def test_error_against_time_is_a_line_a_protocol() -> None:
    curves = curves_frame(trained())
    problem = curves["problem"].iloc[0]
    picture = figure_error(curves, {problem: LEAST})
    assert picture.finding == "Async falls first, and on linear regression ends further above the least loss than sync"
    assert picture.data.groupby("problem")["protocol"].nunique().tolist() == [6, 6]
    assert "Median of 2 seeds" in picture.caption
    alone = curves[curves["protocol"] != "async"]
    assert figure_error(alone, {problem: LEAST}).finding == ""
    late = curves.assign(loss=curves["loss"].where((curves["protocol"] != "async") | (curves["time_s"] > 10), LEAST + 3))
    assert figure_error(late, {problem: LEAST}).finding == ""  # async is not ahead


def test_rates_are_compared_at_one_learner_an_update() -> None:
    made = []
    for protocol, k, rule, error in (
        ("sync", None, RATE, 0.05),
        ("k_batch_async", 1, RATE, 0.9),
        ("k_batch_async", 1, {"kind": "staleness", "rate": 0.1}, 0.05),
        ("k_batch_async", 1, {"kind": "bounded", "c": 0.01, "maximum": 0.1}, 0.06),
    ):
        made += records(
            protocol, 30, k, problem=DIGITS, rate=rule, updates=10 if k is None else 300, losses=(1.0,) * 5, errors=(error,) * 5
        )
    picture = figure_rates(curves_frame(made))
    assert picture.finding == "30-softsync ends at a test error of 90% with the constant rate and 5.0% with the rate divided"
    assert set(picture.data["rule"]) == {"constant", "staleness", "bounded"}


def test_real_runs_stand_beside_the_simulator() -> None:
    made = [
        record("async", 2, update_time_s=t, staleness=1.0, clock=c, problem=LINEAR, rate=RATE, losses=(1.0,))
        for c, t in (("real", 1.05), ("virtual", 1.0))
    ]
    frame = synchrony_frame(made)
    assert real_frame(frame)["ratio"].tolist() == pytest.approx([1.05])
    assert figure_real(frame).finding == "Real processes and the simulator agree within 5% on the time an update"
    html = page.real_table(frame).html
    assert "1.050" in html and ">1.00 (1.00)<" in html
    texts = [text.get_text() for text in figure_real(frame).axes[0].texts]
    assert texts == ["1.050", "real over simulated"] and "one run each" in figure_real(frame).caption


def test_real_runs_of_one_problem_stand_together() -> None:
    other = LINEAR | {"batch_size": 16}
    made = [
        record(protocol, 2, update_time_s=1.0, clock=clock, problem=problem, rate=RATE, losses=(1.0,))
        for protocol in ("sync", "async")
        for problem in (LINEAR, other)
        for clock in ("real", "virtual")
    ]
    found = real_frame(synchrony_frame(made))
    assert found["problem"].duplicated().tolist() == [False, True, False, True] and found["protocol"].tolist() == ["sync", "async"] * 2


def test_runs_over_ray_stand_apart_from_those_of_processes() -> None:
    fields = {"staleness": 1.0, "problem": LINEAR, "rate": RATE, "losses": (1.0,)}
    virtual = record("async", 2, update_time_s=1.0, **fields)
    real = record("async", 2, update_time_s=1.05, clock="real", **fields)
    ray = record("async", 2, update_time_s=1.2, clock="real", engine="ray", **fields)
    device = record("async", 2, update_time_s=1.4, clock="real", server_device="cpu", **fields)
    frame = synchrony_frame([virtual, real, ray, device])
    assert frame["engine"].tolist()[1:] == ["processes", "ray", "processes"] and pd.isna(frame["engine"].iloc[0])
    assert real_frame(frame)["ratio"].tolist() == pytest.approx([1.05])
    assert real_frame(frame, "ray")["ratio"].tolist() == pytest.approx([1.2])
    assert "1.200" in page.real_table(frame, "ray").html and "1.200" not in page.real_table(frame).html
    empty = page.real_table(synchrony_frame([virtual, real]), "ray").html
    assert "No run over Ray actors to show: python -m multigpu synchrony --grid ray makes them, with the extra ray." in empty


def test_a_model_on_devices_stands_beside_the_same_draws_without_gradients() -> None:
    model = TrainedModel(workload="cnn", model="resnet_tiny", batch_size=4, rows=16, test_rows=16)
    real = [record("async", workers, update_time_s=1.1, clock="real", problem=model, rate=RATE, losses=(1.0,)) for workers in (2, 4)]
    bare = [record("async", workers, update_time_s=workers / 2) for workers in (2, 4)]
    twins = [record("async", 2, update_time_s=1.0, clock=clock, problem=LINEAR, rate=RATE, losses=(1.0,)) for clock in ("real", "virtual")]
    found = real_frame(synchrony_frame([*real, *bare, *twins]))
    assert found["ratio"].tolist() == pytest.approx([1.0, 1.1, 0.55]) or found["ratio"].tolist() == pytest.approx([1.1, 1.0, 0.55])
    assert set(found["workers"]) == {2, 4} and "P = 4, images (tiny ResNet), batch 4" in page.real_table(synchrony_frame(real + bare)).html
    assert real_frame(synchrony_frame(real)).empty


def test_tables_of_twins_and_averages() -> None:
    twins = [
        *records("k_sync", 8, 2, update_time_s=1.0, problem=DIGITS, rate=RATE, losses=(1.0,) * 4, errors=(0.1,) * 4),
        *records("k_batch_sync", 8, 2, update_time_s=0.8, problem=DIGITS, rate=RATE, losses=(1.1,) * 4, errors=(0.1,) * 4),
    ]
    html = page.twins_table(synchrony_frame(twins)).html
    assert "K-batch-sync over K-sync" in html and "0.800" in html and "1.100" in html
    html = page.averaging_table(synchrony_frame([*averaged(0.8, 0.1), *averaged(0.2, 0.2, hidden=(), same_start=True)])).html
    assert ">own<" in html and ">equal<" in html and "logistic regression: digits" in html and "0.800 (0.797 to 0.803)" in html
    assert "each on its own" not in html, "long cells made the table scroll"


def test_without_records_every_part_says_so() -> None:
    nothing, curves, shares = synchrony_frame([]), curves_frame([]), staleness_frame([])
    pictures = [figure_runtime(nothing), figure_ratio(nothing), figure_k(nothing), figure_staleness(shares)]
    pictures += [figure_error(curves, {}), figure_rates(curves), figure_real(nothing)]
    for picture in pictures:
        assert "Record" in picture.alt or "No real run" in picture.alt
    for table in (page.ratio_table(nothing), page.twins_table(nothing), page.averaging_table(nothing), page.real_table(nothing)):
        assert "muted" in table.html
    assert "No Record" in page.record_keys(nothing).html


def test_by_hand_there_are_sliders_and_in_the_report_a_figure() -> None:
    frame = synchrony_frame(runtimes())
    assert isinstance(page.explore(frame, by_hand=False), Picture)
    widgets = pytest.importorskip("ipywidgets")
    assert isinstance(page.explore(frame, by_hand=True), widgets.interactive)
    picture = page.predicted("constant", workers=4, gradients=2, updates=20)
    assert picture.data.set_index("protocol")["time_over_mean"]["async"] == pytest.approx(1.0, rel=0.2)
    with pytest.raises(ValueError, match="unknown law 'normal': choose one of constant, exponential"):
        page.predicted("normal")


def test_keys_say_whether_the_tree_was_clean() -> None:
    made = [record("sync", 8), record("async", 8).model_copy(update={"clean_tree": False})]
    html = page.record_keys(synchrony_frame(made)).html
    assert "2 Records, measured at commit planted (1 from a changed tree)" in html and all(r.key in html for r in made)
