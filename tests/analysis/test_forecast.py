"""The forecast on steps made from known parameters, and its page on planted Records."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from multigpu.analysis import forecast_findings as findings
from multigpu.analysis import forecast_page as page
from multigpu.analysis.all_reduce import POINT as COLLECTIVE
from multigpu.analysis.figure_forecast import beside, figure_fan, figure_test, job_names, line_label
from multigpu.analysis.forecast import HeldOut, Points, forecast, held_out, launch_residuals, slowest_of
from multigpu.analysis.forecast_lines import (
    ahead,
    calibrated,
    demand_of_rows,
    forecast_lines,
    inside_latency_s,
    lines_of,
    measured_links,
    noise_of,
)
from multigpu.analysis.forecast_merge import Demand, Links, merge_seconds
from multigpu.analysis.frame import frame_of
from multigpu.synchrony.laws import Empirical
from tests.factory import make_point

LINKS = Links(100.0, node=8, between_bytes_per_s=10.0)
RING, SERVER = Demand(reduced=100.0), Demand(pulled=(100.0,), pushed=(100.0,))


def made(c, x, demand, counts=(1, 2, 4), one_process=False, h=0.0, spread=0.0, launches=4, generator=None, noise=()):
    """Points whose steps follow the model, each launch moved by `spread` on logarithms."""
    times = []
    for p in counts:
        slowest = slowest_of(noise, [p]).mean()
        inside, between = merge_seconds(demand, p, LINKS)
        step = c + h * (p - 1) + inside if one_process else c * slowest + x * inside + between
        moved = generator.normal(0, spread, launches) if generator is not None else np.zeros(launches)
        times.append(tuple(step * np.exp(moved)))
    return Points(tuple(counts), tuple(times), demand, noise, one_process)


@pytest.mark.parametrize(
    ("demand", "x"), [(RING, 0.5), (RING, 3.0), (SERVER, 1.0), (Demand(copied=100.0), 0.25), (Demand(host=100.0), 2.0)]
)
def test_known_parameters_are_found_and_nothing_is_missed_without_noise(demand, x):
    links = Links(100.0, host_bytes_per_s=80.0, node=8, between_bytes_per_s=10.0)
    times = tuple((10 + x * merge_seconds(demand, p, links)[0],) for p in (1, 2, 4))
    points = Points((1, 2, 4), times, demand)
    found, held = forecast(points, [1, 2, 4, 8, 64], links), held_out(points, links)
    assert (found.one_s, found.slope) == pytest.approx((10, x)) and found.misfit == pytest.approx(0, abs=1e-9)
    assert held.error == pytest.approx(0, abs=1e-9) and held.fitted == (1, 2) and held.inside is None
    inside, between = merge_seconds(demand, 64, links)
    assert found.step_s[-1] == pytest.approx(10 + x * inside + between)
    assert found.efficiency[0] == pytest.approx(1)
    assert np.isnan(found.band()[0]).all(), "nothing was repeated, so there is no band"


def test_one_process_pays_the_host_for_every_device():
    points = made(10, 0, SERVER, one_process=True, h=3.0)
    found = forecast(points, [1, 8], LINKS)
    assert (found.one_s, found.slope) == pytest.approx((10, 3))
    assert found.parts_s[:, 1] == pytest.approx([10, 0, 14, 0, 21]), "computation, noise, links of a node, between, host"
    assert found.binding(1)[0] == ("host", pytest.approx(21 / 45))


def test_what_hides_inside_a_node_hides_between_nodes_only_where_merging_overlaps():
    _, between = merge_seconds(RING, 64, LINKS)
    for overlaps, x, share in ((True, 0.5, 0.5), (True, 3.0, 1.0), (False, 0.5, 1.0)):
        demand = Demand(reduced=100.0, overlaps=overlaps)
        found = forecast(made(10, x, demand), [64], LINKS)
        assert found.parts_s[3, 0] == pytest.approx(share * between)


def test_a_curve_that_already_passes_between_nodes_is_fitted_with_its_network():
    demand = Demand(reduced=100.0, overlaps=True)
    times = []
    for p in (1, 4, 8, 16, 32):
        inside, between = merge_seconds(demand, p, LINKS)
        times.append((10 + 0.4 * inside + 0.4 * between,))
    found = forecast(Points((1, 4, 8, 16, 32), tuple(times), demand), [64], LINKS)
    assert (found.one_s, found.slope) == pytest.approx((10, 0.4), rel=1e-5)


def test_limits_all_reduce_keeps_a_share_and_a_server_loses_it_with_every_device():
    counts = [2**k for k in range(11)]
    ring, server = (forecast(made(10, 1, demand), counts, LINKS).efficiency for demand in (RING, SERVER))
    assert (np.diff(ring) <= 1e-12).all() and (np.diff(server) < 0).all()
    assert ring[-1] == pytest.approx(10 / (10 + 2 * 7 / 8 + 2 * 127 / 128 * 100 / 80))
    assert server[-1] / server[-2] == pytest.approx(0.5, rel=0.02), "twice the devices, half the efficiency"


def test_the_slowest_of_p_is_what_order_statistics_say():
    assert slowest_of([(0.5, 1.5)], [1, 2, 1000])[0] == pytest.approx([1, 1.25, 1.5]), "of two draws three in four times the slow one"
    assert slowest_of([], [1, 64])[0] == pytest.approx([1, 1])
    assert slowest_of([(0.1, 0.2, 0.7)], [1])[0, 0] == 1, "one replica waits for nobody, to the last digit"
    times = tuple(np.random.default_rng(0).gamma(50, 0.02, 100))
    law = Empirical(times_s=times)
    assert slowest_of([times], [16])[0, 0] == pytest.approx(law.order_mean_s(16, 16) / law.mean_s)
    points = made(10, 1.0, RING, noise=((0.5, 1.5),))
    found = forecast(points, [1, 1024], LINKS)
    assert (found.one_s, found.slope) == pytest.approx((10, 1)) and found.parts_s[1, 1] == pytest.approx(5)


def test_bands_hold_about_what_they_promise():
    """Noise of launches alone: 120 made studies, their held-out points, their own residuals."""
    generator, inside, wide = np.random.default_rng(1), 0, []
    for study in range(120):
        points = made(10, 0.8, RING, spread=0.01, launches=5, generator=generator)
        held = held_out(points, LINKS, launch_residuals(points.times_s), draws=150, seed=study)
        inside += bool(held.inside)
        wide.append(held.high_s / held.low_s - 1)
    assert 0.87 <= inside / 120 <= 1.0
    assert 0.02 < np.median(wide) < 0.12, "a band of 1% launches, extrapolated, is a few percent wide"


def test_what_the_model_misses_widens_the_fan():
    right = made(10, 1, SERVER, spread=0.002, generator=np.random.default_rng(2))
    wrong = Points(right.devices, (right.times_s[0], right.times_s[1], tuple(1.3 * t for t in right.times_s[2])), SERVER)
    residuals = launch_residuals(right.times_s)
    spans = []
    for points in (right, wrong):
        low, high = forecast(points, [64], LINKS, residuals, draws=200).band()
        spans.append(float((high - low)[0]))
    assert spans[1] > 5 * spans[0]


def test_residuals_have_the_spread_of_a_launch():
    assert launch_residuals([(1.0,), (np.e, np.e**3)]) == pytest.approx([-np.sqrt(2), np.sqrt(2)])
    assert np.var(launch_residuals([(np.e, np.e**3)]), ddof=0) == pytest.approx(2), "the sample variance of 1 and 3"


def test_points_and_fits_that_cannot_be_are_refused():
    with pytest.raises(ValueError, match="must rise"):
        Points((2, 1), ((1.0,), (1.0,)), RING)
    with pytest.raises(ValueError, match="positive step time"):
        Points((1,), ((),), RING)
    with pytest.raises(ValueError, match="1 counts of devices cannot fit 2 parameters"):
        held_out(made(10, 1, RING, counts=(1, 2)), LINKS)


# ---- Records to lines and the page


def planted(c=10.0, x=1.0, counts=(1, 2, 4), placement="ddp", spread=0.004, **fields):
    """Records of ResNet-50 whose rates follow the model on H200s' measured links; five repeats over five launches."""
    generator, records = np.random.default_rng(3), []
    for p in counts:
        first = make_point([1e3], placement=placement, devices=p, workload="cnn", **fields)
        links = measured_links("NVIDIA H200", no_collectives(), Links(1.0))
        inside = merge_seconds(demand_of_rows(frame_of(first)), p, links)[0]
        step = 1e-3 * c + x * inside
        rates = 64 * p / step * np.exp(generator.normal(0, spread, 5))
        records += make_point(list(rates), launches="abcde", placement=placement, devices=p, workload="cnn", **fields)
    return records


def no_collectives():
    return pd.DataFrame({name: [] for name in (*COLLECTIVE, "time_s")})


def no_steps():
    return pd.DataFrame({"key": [], "rank": [], "step": [], "timed": [], "step_time_s": []})


@pytest.fixture(scope="module")
def lines():
    records = planted() + planted(x=2.0, placement="exp4") + planted(placement="independent") + planted(counts=(1, 4), placement="ps_gpu0")
    records += planted(counts=(2, 4), placement="exp2")
    assumed = page.assumed_links(400.0, 5.0, 8, "hierarchical")
    return forecast_lines(lines_of(frame_of(records), no_steps(), no_collectives(), assumed), 1024, draws=100)


def test_planted_records_are_recovered(lines):
    found = {line.placement: line for line in lines}
    assert set(found) == {"ddp", "exp4", "ps_gpu0", "exp2"}, "independent replicas merge nothing"
    ddp, exp4 = found["ddp"], found["exp4"]
    assert ddp.forecast.one_s == pytest.approx(10e-3, rel=0.01) and abs(ddp.held_out.error) < 0.02 and ddp.held_out.devices == 4
    assert ddp.spread == "own" and len(ddp.residuals) == 15
    assert ddp.forecast.devices[-1] == 1024 and ddp.links.inside_bytes_per_s > 1e11
    assert exp4.forecast.efficiency[-1] < 0.1 < ddp.forecast.efficiency[-1]
    assert "2 counts fit 2 parameters" in found["ps_gpu0"].why and found["ps_gpu0"].forecast is None
    assert "not measured on one device" in found["exp2"].why


def test_a_miss_widens_the_bands_of_others_and_not_its_own(lines):
    """Leave-one-out: the line that was missed by a factor of two keeps its band, the others of its kind get wider ones."""
    plain = [replace(line, held_out=line.held_out and line.held_out.widen(1 / line.held_out.widening)) for line in lines]
    own = [index for index, line in enumerate(plain) if line.held_out]
    at = own[0]
    missed = replace(plain[at], held_out=replace(plain[at].held_out, measured_s=2 * plain[at].held_out.predicted_s))
    before = [line.held_out.widening if line.held_out else None for line in calibrated(plain)]
    after = [line.held_out.widening if line.held_out else None for line in calibrated([*plain[:at], missed, *plain[at + 1 :]])]
    assert after[at] == before[at]
    assert any(after[index] > before[index] for index in own[1:]) and all(after[index] >= before[index] for index in own[1:])


def test_the_page_says_what_was_tested_and_why_some_have_no_fan(lines):
    assumed = findings.links_sentence(page.assumed_links(400.0, 5.0, 8, "hierarchical"))
    assert "400 Gbit/s" in assumed and "5 µs" in assumed
    inside, count = findings.coverage(lines)
    assert count == 2 and f"**{inside} of 2**" in findings.test_sentence(lines)
    answers = findings.answers(lines, assumed)
    assert len(answers) == 2 and answers[0].startswith("On 1,024 GPUs")
    assert findings.fan_finding(lines).startswith("Forecast for 1,024 GPUs: all-reduce keeps")
    assert findings.without_fan(lines).startswith("No fan for 2 lines. 1: ")
    assert "161 variables" in findings.spread_sentence(lines)
    table = page.forecast_tables(lines, 1024).html
    assert table.count("<details><summary>ResNet-50 v1.5") == 1
    assert "efficiency on 1,024 (%)" in table and "joined by ring (%)" in table and "links between nodes" in table
    assert "nothing left to test" in page.why_table(lines).html


def with_held(line, held, execution="eager"):
    """The line with another held-out point, of another form of execution."""
    return replace(line, rows=line.rows.assign(execution=execution), held_out=held)


def test_bands_that_overlap_show_nothing_and_one_above_100_has_no_upper_bound(lines):
    """Bands as measured lie apart and the ranges are bold; widened 400 times they overlap, and 1126% would be no bound."""
    said = findings.fan_sentence(lines, "")
    assert "of 2 lines that reach so far" in said and "**" in said and "overlap" not in said and "no upper bound" not in said
    wide = [replace(line, forecast=line.forecast and replace(line.forecast, widening=400.0)) for line in lines]
    said = findings.fan_sentence(wide, "")
    assert findings.fan_finding(wide) is None
    assert "**The bands overlap**: those of 0 of 1 all-reduce line lie above all of the others'" in said
    assert said.count("**") == 2 and "with no upper bound; 1 line)" in said
    ddp = next(line for line in wide if line.placement == "ddp")
    cell = page._percent(ddp.forecast, ddp.at(1024))
    assert cell.endswith("or more)") and " to " not in cell
    one = page._percent(replace(ddp.forecast, widening=0.1), ddp.at(1024))
    assert " to " in one and "or more" not in one


def test_what_widening_did_stands_in_the_title_and_by_form_of_execution(lines):
    """A band from half to twice the prediction, widened twice in logarithms, reached from 0.71 to 1.41 before: 1.5 lay outside."""
    own = [line for line in lines if line.held_out]
    held = HeldOut(4, (1, 2), 1.0, 0.5, 2.0, 1.5, widening=2.0)
    near, plain = replace(held, measured_s=1.25), HeldOut(4, (1, 2), 1.0, 0.8, 1.2, 1.25)
    made = [with_held(own[0], held, "captured"), with_held(own[0], near, "captured"), with_held(own[1], plain)]
    assert findings.inside_before(made) == 1
    assert findings.test_finding(made).startswith("2 of 3 held-out points lie in their 95% band (1 before it was widened); half of the")
    assert findings.test_finding(made[2:]).startswith("0 of 1 held-out points lie in their 95% band; "), "nothing was widened"
    captured, eager = findings.by_execution(made).split(" Eager ")
    assert captured == (
        "Captured steps: 2 of 2 inside, middle error 27%; from its low end to its high one a band is 4 times in the middle and 4 times "
        "at most; before it was widened 2 times in the middle, with 1 inside."
    )
    assert eager.endswith("a band is 1.5 times in the middle and 1.5 times at most.")
    table = page.outside_table(made).html
    assert "-20.0" in table and "-36.0 to -4.0" in table and table.count("<tr") == 3, "0.8 to 1.2 of 1.25, under a title and its columns"
    assert "No held-out point lies outside" in page.outside_table(made[:2]).html


def test_lines_without_a_fan_are_counted_by_model(lines):
    few = next(line for line in lines if line.placement == "ps_gpu0")
    html = page.why_table([few, few, replace(few, rows=few.rows.iloc[:1])]).html
    assert html.count("<tr") == 2 and ">3<" in html and "1, 4; 1<" in html


def test_a_job_has_a_table_of_its_test_and_one_of_its_forecast(lines):
    """In one table they were 1,569 pixels wide."""
    html = page.forecast_tables(lines, 1024).html
    first, second = html.split("</table>")[:2]
    assert "predicted (ms)" in first and "spread from" in first and "efficiency on" not in first
    assert "efficiency on 1,024 (%)" in second and "predicted (ms)" not in second


def test_the_fan_draws_bands_of_trusted_lines_and_no_line_that_misses_its_own_points(lines):
    own = [line for line in lines if line.forecast]
    (ax,) = figure_fan(own, "").axes
    assert len(ax.collections) - 2 == 2, "two bands beside two intervals of held-out points"
    missed = replace(own[0], held_out=replace(own[0].held_out, measured_s=2 * own[0].held_out.predicted_s))
    assert len(figure_fan([missed, own[1]], "").axes[0].collections) == 3
    astray = replace(own[0], forecast=replace(own[0].forecast, misfit=0.3))
    picture = figure_fan([astray, own[1]], "")
    assert set(picture.data["placement"]) == {own[1].placement} and "1 further forecasts" in picture.caption
    assert "1 of them since they miss points they were fitted to by over 5%" in picture.caption
    assert "misses points it was fitted to" in figure_fan([astray], "").alt
    captured = replace(own[0], rows=own[0].rows.assign(execution="captured"))
    (ax,) = figure_fan([own[0], captured], "").axes
    assert len({line.get_linestyle() for line in ax.lines if len(line.get_xdata()) > 5}) == 2, "one colour, so two dashes"


def test_the_test_is_one_strip_of_marks_by_form_of_execution(lines):
    own = [line for line in lines if line.held_out]
    graph = [replace(line, rows=line.rows.assign(execution="graph")) for line in own]
    picture = figure_test([*own, *graph, *graph])
    (ax,) = picture.axes
    assert [label.get_text() for label in ax.get_yticklabels()] == ["graph, 4", "eager, 2"]
    assert sum(len(line.get_xdata()) for line in ax.lines if line.get_marker() in ("o", "X")) == 6
    assert picture.get_size_inches()[1] < 5 and len(picture.data) == 6
    assert beside([0.0, 0.01, 0.02, 1.0], 0.05, 0.1) == [0, 0.1, -0.1, 0], "close marks stand above and below each other"


def test_figures_draw_every_forecast_with_its_data(lines):
    fan, test = figure_fan(lines, "Assumed."), figure_test(lines)
    assert set(fan.data["placement"]) == {"ddp", "exp4"} and fan.data["devices"].max() == 1024
    assert list(fan.data.loc[fan.data["held_out"], "devices"]) == [4, 4]
    parts = ["computation_s", "noise_s", "links_inside_s", "links_between_s", "host_s"]
    assert fan.data[parts].sum(axis=1).to_numpy() == pytest.approx(fan.data["step_s"].to_numpy())
    assert len(test.data) == 2 and set(test.data["fitted_on"]) == {"1 2"}
    group = [line for line in lines if line.forecast]
    assert job_names([group]) == ["ResNet-50 v1.5, batch 64 a GPU"]
    assert line_label(group[0], group) == "ddp"
    looped = replace(group[0], rows=group[0].rows.assign(recurrence="stepwise"))
    assert line_label(looped, [group[0], looped]) == "ddp, stepwise" and line_label(group[0], [group[0], looped]) == "ddp"


def test_without_records_the_page_says_so():
    assert findings.answers([], "") == [findings.NONE]
    assert "three numbers of devices" in figure_fan([], "").alt and "Nothing was held out" in figure_test([]).alt
    assert findings.test_finding([]) is None and findings.fan_finding([]) is None and findings.without_fan([]) is None
    assert "No forecast" in page.forecast_tables([], 1024).html
    with pytest.raises(ValueError, match="network_gbit must be above 0"):
        page.assumed_links(0, 5, 8, "ring")
    with pytest.raises(ValueError, match="at least 2 devices, not 1"):
        page.observe(frame_of([]), Links(1.0), 1)


def test_counts_of_a_forecast():
    assert ahead((1, 3), 8, False, 8) == [1, 2, 3, 4, 8]
    assert ahead((1, 2), 1024, True, 8) == [1, 2, 4, 8], "one process dispatches for its own host"


def test_latency_is_how_the_shortest_call_grows():
    rows = [("captured", 2, 10e-6), ("captured", 4, 14e-6), ("eager", 2, 90e-6), ("eager", 4, 20e-6)]
    table = pd.DataFrame([{"kind": "library", "bytes": 4, "execution": e, "devices": d, "time_s": t} for e, d, t in rows])
    assert inside_latency_s(table) == pytest.approx(1e-6), "4 us more for 4 messages more"
    assert inside_latency_s(table[table["devices"] == 2]) == 0


def test_noise_is_of_timed_steps_of_the_first_rank():
    rows = [("a", 0, 0, False, 9.0), ("a", 0, 1, True, 1.0), ("a", 0, 2, True, 3.0), ("a", 1, 1, True, 7.0), ("b", 0, 1, True, 5.0)]
    steps = pd.DataFrame(rows, columns=["key", "rank", "step", "timed", "step_time_s"])
    assert noise_of(steps, ["a"]) == ((0.5, 1.5),)


def test_document_004s_curve_and_networks():
    points = page.document_points()
    assert points.devices == (1, 2, 4, 8, 12, 16) and points.times_s[0] == (0.36,)
    links = page.document_links("004", Links(150e9))
    assert links.node == 4 and links.between_bytes_per_s == pytest.approx(100e9 / 8 / 4)
    assert page.document_links("002", Links(1.0)).between_bytes_per_s == pytest.approx(50e9 / 8 / 8)
    held = held_out(points, links)
    assert held.devices == 16 and abs(held.error) < 0.1
    with pytest.raises(ValueError, match="states no network"):
        page.document_links("003", Links(1.0))
