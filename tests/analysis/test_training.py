"""Frames of TrainingRecords and what is said of them, on planted Records worked out by hand."""

from __future__ import annotations

import json
import math

import pytest

from multigpu import paths
from multigpu.analysis import training_page as page
from multigpu.analysis import training_rates as rates
from multigpu.analysis import training_words as words
from multigpu.analysis.figure_training import figure_curves, figure_distance
from multigpu.analysis.figure_training_rates import figure_batch, figure_rules, figure_schedule, schedule_points
from multigpu.analysis.frame import frame_of
from multigpu.analysis.training import (
    ALLOWED,
    curve_distance,
    curves_frame,
    reach_frame,
    same_curve_table,
    training_frame,
    training_records,
)
from multigpu.analysis.training_threats import in_both_shapes, threats, without_curve
from multigpu.record import Record
from multigpu.training.grid import GRIDS
from multigpu.training.joined import joined_placements
from multigpu.training.placement_grid import GENTLE_RATE, full, small
from tests.factory import make_machine, make_point
from tests.training.planted import trained

LOSSES = [2.0 - 0.05 * step for step in range(20)]
STRONG = {"devices": 2, "batch_size": 64, "scaling": "strong", "base_rate": 0.05, "epochs": 4}


def shifted(by: float) -> list[float]:
    """The curve, its second half `by` times itself higher."""
    return [*LOSSES[:10], *(loss * (1 + by) for loss in LOSSES[10:])]


def panel(other: float, other64: float = 0.0, replicas: float = 0.5):
    """ddp in fp64 is the truth, ddp in fp32 lies 1% from it, exp2 and independent replicas as asked."""
    return [
        trained(LOSSES, placement="ddp", precision="fp64", **STRONG),
        trained(shifted(0.01), placement="ddp", **STRONG),
        trained(shifted(other), placement="exp2", **STRONG),
        trained(shifted(other64), placement="exp2", precision="fp64", **STRONG),
        trained(shifted(replicas), placement="independent", **STRONG),
    ]


def same_of(records) -> dict[tuple[str, str], bool | None]:
    """Placement and precision -> whether its curve is the same."""
    table = same_curve_table(training_frame(records), curves_frame(records))
    assert table["drift"].to_list() == pytest.approx([0.01] * 5) and ALLOWED == 3
    return {(row["placement"], row["precision"]): row["same"] for _, row in table.iterrows()}


def test_a_row_by_hand():
    row = training_frame([trained(LOSSES, accuracies=(0.5, 0.9, 0.8, 0.7), step_s=0.5, gpus=2, devices=2, energy_j=(30.0, 50.0))]).iloc[0]
    assert (row["joined_batch"], row["steps"], row["train_s"], row["step_time_s"], row["units_per_s"]) == (32, 20, 10.0, 0.5, 64.0)
    assert row["last_loss"] == pytest.approx((LOSSES[18] + LOSSES[19]) / 2)
    assert (row["accuracy"], row["best_accuracy"], row["energy_j"]) == (0.7, 0.9, 80.0)


def test_distance_is_of_windows_and_relative():
    assert curve_distance(shifted(0.1), LOSSES) == pytest.approx(0.1)
    wobbling = [loss + (0.3 if step % 2 else -0.3) for step, loss in enumerate(LOSSES)]
    assert curve_distance(wobbling, LOSSES) == pytest.approx(0, abs=1e-12)
    assert curve_distance(LOSSES[:5], LOSSES) == math.inf


def test_the_tolerance_comes_from_the_drift_of_fp32():
    assert same_of(panel(0.029))["exp2", "fp32"] is True
    assert same_of(panel(0.031))["exp2", "fp32"] is False


def test_fp64_is_held_to_what_rounding_can_do_there():
    """2^-29 of 3% is 5.6e-11."""
    assert same_of(panel(0.01, 5e-11))["exp2", "fp64"] is True
    assert same_of(panel(0.01, 1e-6))["exp2", "fp64"] is False


def test_independent_replicas_need_not():
    assert same_of(panel(0.01))["independent", "fp32"] is None


def said(seen: page.Seen) -> str:
    return words.answer(seen).html + words.exceptions(seen).html


def test_what_cannot_miss_is_not_counted():
    """ddp beside itself lies at 0, and its drift within three times itself, whatever it does."""
    records = panel(0.01)
    table = same_curve_table(training_frame(records), curves_frame(records)).set_index("key")
    assert [table.loc[record.key, "role"] for record in records] == ["reference", "yardstick", "compared", "compared", "free"]
    assert table.loc[[records[0].key, records[1].key], "same"].isna().all()
    seen = page.see(records)
    assert "all 2 joined runs compared with ddp (1 other placement, fp32 and fp64) follow" in words.answer(seen).html
    html = page.curve_table(seen).html
    assert html.count(">reference<") == html.count(">yardstick<") == html.count(">need not<") == 1 and html.count(">yes<") == 2


def test_a_tolerance_that_independent_replicas_keep_too_tells_nothing():
    """Replicas 2% away lie within fp32's 3%, not within fp64's 5.6e-11; what lies beyond even that tolerance misses it all the same."""
    assert same_of(panel(0.01, replicas=0.02))["exp2", "fp32"] is None
    assert same_of(panel(0.01, replicas=0.02))["exp2", "fp64"] is True
    assert same_of(panel(0.031, replicas=0.02))["exp2", "fp32"] is False
    assert same_of(panel(0.01, replicas=0.031))["exp2", "fp32"] is True
    seen, alone = page.see(panel(0.01, replicas=0.02)), page.see(panel(0.01)[:-1])
    text, html = said(seen), page.curve_table(seen).html
    assert "Not counted: 1 run in fp32 of small ResNet on handwritten digits, 2 devices, since the tolerance does not tell" in text
    assert "all 1 joined run compared" in text and ">not told<" in html
    assert "Not told: the tolerance does not tell independent replicas apart here." in html and "No replicas" not in html
    assert alone.same["same"].isna().all(), "without replicas nothing shows what the tolerance can tell"
    assert "1 run in fp64 of" in said(alone) and "since no independent replicas were trained there" in said(alone)
    assert "<p>" not in words.exceptions(page.see(panel(0.01))).html, "where all are counted and follow there is nothing to say"
    assert ">no replicas<" in page.curve_table(alone).html
    for nothing in (figure_curves(alone.same, alone.curves), figure_distance(alone.same)):
        assert nothing.finding == "No joined run has a tolerance that tells it from independent replicas"
    drawn = figure_distance(seen.same)
    assert len(drawn.data) == 3, "all but the reference and the replicas"
    assert (beyond := figure_distance(page.see(panel(0.031)).same).finding) and beyond.startswith("1 of 2 joined runs compared lie further")


def test_the_comparison_that_tells_most_leads():
    """The first panel's replicas lie at 5 times its tolerance of 3%; of the second's, of 3e-6, at 50,000 times."""
    gentle = {**STRONG, "inputs": "teacher_small"}
    records = panel(0.01, replicas=0.15)
    records += [trained(LOSSES, placement="ddp", precision="fp64", **gentle), trained(shifted(1e-6), placement="ddp", **gentle)]
    records += [trained(shifted(2e-6), placement="exp2", **gentle), trained(shifted(0.15), placement="independent", **gentle)]
    text = words.answer(page.see(records)).html
    first, second = text.split("<p>")[1:3]
    assert first.startswith("small ResNet on 4,000 images that a network labelled, 2 devices: all 1 joined run compared")
    assert "to the last of 20 steps" in first and "Independent replicas" not in first
    assert second.startswith("Of all comparisons together all 3 runs follow")
    assert "lie at 5 times the tolerance in the job that tells least, at 50,000 times in the one that tells most." in second


TRAINED = {"ddp", "exp1", "exp2", "exp3", "exp4", "independent", "ps_gpu0"}
TRAINED |= {f"replicated_{way}" for way in ("allreduce", "copy", "ring", "server")}
"""Placements that Records compare at the gentle rate; one that is added joins them with its first Record."""


def test_committed_placements_follow_one_curve_to_the_end_of_their_budget():
    """Every Record of the two grids that compare placements at a rate where they can be: there, at its last step, the same curve."""
    records = {record.training.digest: record for record in training_records(paths.TRAINING) if record.status == "ok"}
    known = joined_placements(unit="words")
    assert set(known) >= TRAINED
    two = [small(name, "fp32") for name in known]
    two += [small(name, "fp64") for name in known if name != "independent"]
    whole = [full(name, 2) for name in known]
    assert {training.base for training in two} == {GENTLE_RATE}
    two, whole = ([t for t in planned if t.run.placement in TRAINED or t.digest in records] for planned in (two, whole))
    missing = [training.label() for training in (*two, *whole) if training.digest not in records]
    assert not missing, missing
    for planned, drift, beyond in ((two, 1e-6, 1e4), (whole, 0.01, 1.0)):
        own = [records[training.digest] for training in planned]
        for record in own:
            m = record.measurement
            assert m is not None and m.steps == record.training.budget(m.steps_per_epoch) > 150
        curves = curves_frame(own)
        assert (curves.groupby("key")["step"].max() == [r.measurement.steps for r in sorted(own, key=lambda r: r.key)]).all()
        table = same_curve_table(training_frame(own), curves)
        assert len(table) == len(planned) and table["panel"].nunique() == 1
        compared = table[table["role"] == "compared"]
        assert set(compared["placement"]) >= TRAINED - {"ddp", "independent"}
        assert compared["same"].tolist() == [True] * len(compared), compared[["placement", "precision", "distance", "tolerance"]]
        # rounding is small, and far from what another result does
        assert table["drift"].max() < drift and table["replicas"].min() > beyond * table["tolerance"].max()
        (free,) = table.loc[table["role"] == "free", "placement"]
        assert free == "independent"


@pytest.mark.parametrize("grid", ["training_cpu", "training_cifar_cpu", "training_alexnet_cpu"])
def test_committed_image_models_follow_one_curve_under_every_placement_on_cpus(grid: str):
    """make_parallel too, whose one process has all devices: every comparison of these grids has its Record, and none misses."""
    records = {record.training.digest: record for record in training_records(paths.TRAINING) if record.status == "ok"}
    planned = [entry.training for entry in GRIDS[grid]() if entry.question == "same curve"]
    missing = [training.label() for training in planned if training.digest not in records]
    assert not missing, missing
    own = [records[training.digest] for training in planned]
    table = same_curve_table(training_frame(own), curves_frame(own))
    compared = table[table["role"] == "compared"]
    assert len(compared) == len(planned) - 3 * table["panel"].nunique(), "all but reference, yardstick and independent replicas"
    assert compared["same"].tolist() == [True] * len(compared), compared[["placement", "precision", "distance", "tolerance"]]
    concatenated = compared[compared["processes"] == "one"]
    assert set(concatenated["placement"]) == {"make_parallel", "make_parallel_cpu"}
    assert len(concatenated) == 4 * table["panel"].nunique() and (concatenated["replicas"] > concatenated["tolerance"]).all()
    assert (concatenated.loc[concatenated["precision"] == "fp64", "distance"] < 1e-12).all()


def test_time_to_accuracy_is_the_first_time():
    records = [trained(LOSSES, accuracies=(0.5, 0.9, 0.8, 0.95), step_s=0.5)]
    found = reach_frame(records, [0.85, 0.95, 0.99])
    assert found["steps"].to_list()[:2] == [10, 20] and math.isnan(found["steps"].iloc[2])
    assert found["seconds"].to_list()[:2] == [5.0, 10.0] and found["samples"].to_list()[:2] == [160, 320]


def test_power_and_efficiency_come_from_records_alone():
    strong = {**STRONG, "execution": "captured"}
    with_gpus = [
        trained(LOSSES, gpus=2, step_s=1.0, energy_j=(8000.0,), **{**strong, "devices": 1}),
        trained(LOSSES, gpus=2, step_s=0.625, energy_j=(6000.0, 6500.0), **strong),
    ]
    html = page.system_table(page.see(with_gpus)).html
    assert "0.80" in html and "20%" in html and "992" in html and "12.5" in html, "T1 / (N TN) = 1 / (2 x 0.625); 12.5 kJ in 12.6 s"
    assert "Cost, GPU-s" in html and ">25.0<" in html and ">20.0<" in html, "two GPUs for 12.5 s, one for 20 s"
    assert "counters need" not in html
    html = page.system_table(page.see([trained(LOSSES, **STRONG)])).html
    assert "Not measured: Efficiency; Overhead; Power, W; Energy, kJ." in html
    assert "Not compared: Time, s; Cost, GPU-s." in html


def test_gpus_come_first_and_a_level_is_that_of_runs_with_one_budget_and_law():
    """The decayed run's 0.97 would put the level beyond what the others can reach: 95% of their own 0.9 is 85%."""
    on_gpus = {**STRONG, "inputs": "teacher_small"}
    records = [trained(LOSSES, (0.6, 0.9), **STRONG), trained(LOSSES, (0.6, 0.9), gpus=2, step_s=1.0, **on_gpus)]
    records += [trained(LOSSES, (0.5, 0.88), gpus=2, step_s=1.0, **on_gpus | {"placement": "exp4"})]
    alone = {**on_gpus, "devices": 1, "scaling": "weak"}
    records += [trained(LOSSES, (0.9,), gpus=2, **alone)]
    records += [trained(LOSSES, (0.97,), gpus=2, schedule="luong10", schedule_steps=20, **alone)]
    seen = page.see(records)
    assert seen.frame["device_type"].to_list() == ["cuda"] * 4 + ["cpu"] and "4,000 images" in seen.same["panel"].iloc[0]
    levels = dict(zip(seen.reach["key"], seen.reach["level"], strict=True))
    assert [levels[key] for key in seen.frame["key"]] == [0.85, 0.85, 0.85, 0.92, 0.85]
    html = page.system_table(seen).html
    assert ">20.0<" in html and ">40.0<" in html and "never" not in html, "both reach 85% at the second evaluation, after 20 s"
    assert "with the decay one device reaches 97.0%, at the constant rate 90.0% (1 seed)." in rates.decayed(seen).html


def test_power_over_too_short_a_time_is_left_out_with_its_reason():
    """20 steps of 0.25 s and 0.1 s of scoring: half of what the counters need."""
    html = page.system_table(page.see([trained(LOSSES, gpus=2, step_s=0.25, energy_j=(2000.0, 2000.0), **STRONG)])).html
    assert "No power or energy: training shorter than the 10 s" in html and "Power, W" not in html and ">784<" not in html
    resumed = training_frame([trained(LOSSES, gpus=2, step_s=1.0, energy_j=(2000.0,))])
    assert resumed["energy_s"].iloc[0] == pytest.approx(20.1)


def test_translation_is_compared_at_each_rate_by_itself():
    """At the high rate exp2 in fp64 leaves in the second half, as ddp in fp32 does; at the low one nothing does. No accuracy: no row."""
    job = {"workload": "nmt", "model": "nmt_short", "inputs": "pieces_short", "shuffle": True, "devices": 2, "batch_size": 64}
    job |= {"scaling": "strong", "epochs": 3}
    records = [
        trained(shifted(by), (), placement=placement, precision=precision, base_rate=rate, **job)
        for rate, apart in ((3e-3, 0.01), (1e-3, 0.0))
        for placement, precision, by in (
            ("ddp", "fp64", 0.0),
            ("ddp", "fp32", apart or 1e-7),
            ("exp2", "fp64", apart / 10),
            ("exp2", "fp32", 2 * apart),
            ("replicated_copy", "fp64", 0.0),
            ("independent", "fp32", 0.5),
        )
    ]
    seen = page.see(records)
    first, second = dict.fromkeys(seen.same["panel"])
    assert first == "NMT (short sentences) on one package of the corpus, 2 devices, rate 0.001" and second.endswith("rate 0.003")
    assert seen.same["same"].tolist() == [None, None, True, True, True, None, None, None, False, True, True, None]
    assert seen.same["leaves_at"].tolist()[-5:-2] == [20.0] * 3 and seen.same["leaves_at"].notna().sum() == 5
    assert seen.same["differs_at"].tolist()[-5:-2] == [11.0] * 3 and math.isnan(seen.same["differs_at"].iloc[0])
    text = said(seen)
    assert f"{first}: all 3 joined runs compared with ddp (2 other placements, fp32 and fp64) follow" in text
    assert "Of all comparisons together 5 of 6 runs follow" in text and "not the result" not in text
    assert (
        f"{second}: Exp2 in fp64 does not follow, and lies 0.01% of the loss or more from it by step 20 of 20; rounding alone takes" in text
    )
    assert "ddp in fp32 that far by step 20 of 20. At a rate of 0.001 they all do." in text
    assert "They are the 1 placements" not in text and "It is the 1" not in text
    assert "It is the one placement that sends rows of the tables; the 1 other with copies of the tables equals the reference" in text
    assert "every digit" not in text.split("It is the one")[0].split("0.003:")[1], "fp64 differs as early as fp32 does: nothing is told"
    # fp64 that differs later than fp32 does: its first digits are equal
    late = [*LOSSES[:15], *(loss * 1.001 for loss in LOSSES[15:])]
    swapped = [trained(late, (), placement="exp2", precision="fp64", base_rate=3e-3, **job) if r is records[2] else r for r in records]
    assert "Before step 16 every digit that a Record keeps is equal, as ddp's are in fp32 before step 11:" in said(page.see(swapped))
    assert "Exp2" not in page.system_table(seen).html, "nothing of what that table is for is known"
    assert len(figure_curves(seen.same, seen.curves).data["panel"].unique()) == 2


def test_batches_of_several_seeds_are_told_as_means():
    rule = {"reference_batch": 16, "base_rate": 0.02, "epochs": 6, "rate_scaling": "linear", "schedule": "warmup"}
    records = [
        trained(LOSSES, (0.2, accuracy), batch_size=batch, seed=seed, **rule)
        for seed, accuracies in enumerate(((0.8, 0.9, 0.4), (0.9, 0.9, 0.6)))
        for batch, accuracy in zip((16, 32, 64), accuracies, strict=True)
    ]
    one, two = page.see(records[:3]), page.see(records)
    assert "One seed (screening)." in rates.batch_table(one).html and "One seed (screening)." in figure_batch(one.frame, one.reach).caption
    html = rates.batch_table(two).html
    assert "2 seeds a batch." in html and "85.0% (80.0% to 90.0%)" in html and "One seed" not in html
    # the level is 85%: one of two runs at the batch of 16 reaches it, none at 64
    assert "20 (1 of 2)" in html and ">never<" in html
    mixed = page.see(records[:4])
    assert "2 seeds" not in rates.batch_table(mixed).html, "one batch alone is no sweep"
    assert "1 to 2 seeds a batch" in rates.batch_table(page.see([*records, trained(LOSSES, (0.9,), batch_size=128, **rule)])).html
    assert "a batch of 64 reaches 50%, one of 32 90%" in (figure_batch(two.frame, two.reach).finding or "")


def images(devices: int, batch: int, units_per_s: float, launches: str = "aabba", **fields) -> list[Record]:
    """Five repeats of a Run by which C46 tells efficiency."""
    run = {"workload": "cnn", "model": "resnet50_v1.5", "precision": "bf16", "execution": "captured", "sequence_length": None}
    run |= {"layout": "channels_last", "batch_size": batch, "devices": devices, "machine": make_machine(4)}
    return make_point([units_per_s] * 5, launches, **run | fields)


def test_efficiency_and_accuracy_stand_beside_each_other_by_joined_batch():
    """3,040 / (4 x 800) = 95%; on 2 GPUs one batch alone was measured, and buckets of another size are another Run."""
    runs = [*images(1, 16, 800), *images(4, 16, 3040), *images(1, 32, 1000), *images(4, 32, 3920), *images(1, 64, 1000)]
    runs += [*images(4, 64, 3960), *images(2, 16, 1000), *images(1, 128, 1000, bucket_mib=1), *images(4, 128, 2000, bucket_mib=1)]
    rule = {"reference_batch": 64, "base_rate": 0.02, "epochs": 6, "rate_scaling": "linear", "schedule": "warmup"}
    rule |= {"gpus": 2, "model": "resnet20", "inputs": "teacher", "layout": "channels_last"}
    records = [trained(LOSSES, (accuracy,), batch_size=batch, **rule) for batch, accuracy in ((64, 0.9), (128, 0.8), (512, 0.1))]
    records.append(trained(LOSSES, (0.88,), batch_size=64, seed=1, **rule))
    points = rates.efficiency_points(frame_of(runs))
    assert points["joined_batch"].tolist() == [64, 128, 256] and points["efficiency"].tolist() == pytest.approx([0.95, 0.98, 0.99])
    html = rates.efficiency_table(page.see(records), frame_of(runs)).html
    rows = [[cell.split("<")[0] for cell in row.split(">") if cell.split("<")[0].strip()] for row in html.split("</table>")[0].split("<tr")]
    by_batch = {row[0]: row[1:] for row in rows if row and row[0] in ("64", "128", "256", "512")}
    assert list(by_batch) == ["64", "128", "256", "512"]
    assert by_batch["64"][0] == "16" and by_batch["64"][1].startswith("95.0%") and by_batch["64"][2] == "90.0%", by_batch
    assert by_batch["128"][1].startswith("98.0%") and by_batch["128"][2] == "80.0%"
    assert by_batch["256"][0] == "64" and len(by_batch["256"]) == 2 and by_batch["512"] == ["10.0%"]
    assert "Accuracy, ResNet-20" in html and "16 images a GPU already reach 95.0%, 64 reach 1.04 times that." in html
    for part in (rates.efficiency_table(page.see([]), frame_of(runs)), rates.efficiency_table(page.see(records), frame_of([]))):
        assert "have not both been measured yet" in part.html


def test_a_batch_that_stands_twice_says_which_is_warmed_up():
    """0.9 warmed up and 0.8 constant at the batch itself, 0.88 at eight times it: 0.98 times the one, 1.10 times the other."""
    rule = {"reference_batch": 16, "base_rate": 0.02, "epochs": 6, "gpus": 1}
    warm = {**rule, "rate_scaling": "linear", "schedule": "warmup"}
    records = [trained(LOSSES, (accuracy,), batch_size=batch, **warm) for batch, accuracy in ((16, 0.9), (64, 0.9), (128, 0.88))]
    assert "at a constant rate" not in rates.batch_table(page.see(records)).html
    html = rates.batch_table(page.see([*records, trained(LOSSES, (0.8,), **rule)])).html
    assert "here the batch of 16 is warmed up, as all are, and reaches 90.0% (1 seed), which C46 divides by" in html
    assert "at a constant rate, as in the table of rules, 80.0% (1 seed), which C32 divides by." in html
    assert "Eight times that batch reaches 0.98 times the one and 1.10 times the other." in html


def test_precisions_are_compared_at_one_batch_and_rate():
    """bf16 at 0.8 and 0.9 beside fp32 at 0.9 and 0.9, at twice the rate; a decayed run and one of another batch are none of them."""
    rule = {"gpus": 1, "base_rate": 0.02, "epochs": 6}
    records = [trained(LOSSES, (accuracy,), seed=seed, precision="bf16", step_s=0.05, **rule) for seed, accuracy in enumerate((0.8, 0.9))]
    records += [trained(LOSSES, (0.9,), seed=seed, **rule) for seed in range(2)]
    records += [trained(LOSSES, (0.5,), batch_size=64, **rule), trained(LOSSES, (0.6,), schedule="luong10", schedule_steps=20, **rule)]
    seen = page.see(records)
    assert len(rates.precision_points(seen.frame)) == 4
    html = rates.precision_table(seen).html
    assert "85.0% (80.0% to 90.0%)" in html and ">80.0%, 90.0%<" in html and ">2.00<" in html and ">320<" in html
    assert html.index(">fp32<") < html.index(">bf16<") and "50.0%" not in html and "60.0%" not in html
    assert "No Record to show." in rates.precision_table(page.see(records[2:4])).html, "one precision is nothing to compare"


def test_training_to_the_end_is_pytorchs_and_the_page_says_so():
    frame = training_frame(training_records(paths.TRAINING))
    cells = json.loads((paths.REPOSITORY / "notebooks" / "12-training.ipynb").read_text())["cells"]
    text = " ".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
    assert set(frame["framework"]) == {"torch"} and "Training to the end runs in PyTorch alone." in text
    assert "(`tests/engines/test_twins.py`)" in text and (paths.REPOSITORY / "tests" / "engines" / "test_twins.py").exists()


def test_what_limits_the_page_is_computed():
    records = [*panel(0.01), *(trained(LOSSES, schedule="luong10", schedule_steps=20, seed=seed, epochs=6) for seed in range(2))]
    records.append(trained(LOSSES, devices=2, schedule="luong10", schedule_steps=20, adjust_to_devices=False, epochs=6))
    text = threats(page.see(records)).html
    assert "Seeds of a setting: curves 1 and schedules 1 to 2; one is screening." in text
    assert "Seeds" not in threats(page.see([])).html


def test_placements_without_a_curve_are_named_and_so_is_the_shape_of_processes():
    """The panel holds exp2 and ddp on CPUs; then make_parallel, which has one process alone; then a placement that has both shapes."""
    seen = page.see(panel(0.01))
    missing = without_curve(seen, "cpu")
    assert set(missing) == set(joined_placements()) - {"ddp", "exp2", "independent"} and "make_parallel_cpu" in missing
    text = threats(seen).html
    assert "make_parallel, CPU and Exp1 have no curve: no Record" in text and "On GPUs" not in text and "With one process" not in text
    concatenated = trained(shifted(0.02), placement="make_parallel", processes="one", **STRONG)
    seen = page.see([*panel(0.01), concatenated])
    assert set(without_curve(seen, "cpu")) == set(missing) - {"make_parallel"}
    assert "With one process for all devices make_parallel was trained to the end, and no other placement" in threats(seen).html
    assert in_both_shapes() and not {"ddp", "make_parallel"} & set(in_both_shapes())
    assert "make_parallel, one process" in page.curve_table(seen).html and "exp2, one process" not in page.curve_table(seen).html.lower()
    assert figure_distance(seen.same).caption.endswith("With one process for all devices: make_parallel.")
    row = seen.same.set_index("key").loc[concatenated.key]
    assert (row["role"], row["same"], row["processes"]) == ("compared", True, "one")
    both = page.see([*panel(0.01), concatenated, trained(shifted(0.02), placement="exp2", processes="one", **STRONG)])
    drawn = figure_distance(both.same)
    assert drawn.caption.endswith("With one process for all devices: make_parallel.")
    assert {"Exp2, one process", "Exp2", "make_parallel"} <= {text.get_text() for ax in drawn.axes for text in ax.get_yticklabels()}
    assert "With one process" not in threats(both).html, "what is said to be missing is there"


def test_every_part_speaks_with_and_without_records():
    rule = {"reference_batch": 16, "base_rate": 0.02, "epochs": 6}
    records = [*panel(0.01)]
    for seed in range(2):
        records += [trained(LOSSES, (0.95,), seed=seed, **rule), trained(LOSSES, (0.5,), seed=seed, **rule | {"batch_size": 128})]
        for schedule, accuracy in (("warmup", 0.9), ("constant", 0.7)):
            records.append(trained(LOSSES, (accuracy,), seed=seed, batch_size=128, rate_scaling="linear", schedule=schedule, **rule))
    for batch in (16, 32, 64):
        records.append(trained(LOSSES, (0.6, 0.9), batch_size=batch, rate_scaling="linear", schedule="warmup", **rule))
    for devices, adjusted in ((1, True), (2, True), (2, False)):
        records.append(trained(LOSSES, devices=devices, schedule="luong10", schedule_steps=20, adjust_to_devices=adjusted, epochs=6))
    # decays for its own sake: nothing to compare with
    records.append(trained(LOSSES, inputs="teacher_small", schedule="luong10", schedule_steps=20, epochs=20))
    records.append(trained(status="failed", reason="replicas hold different weights", placement="replicated_ring", devices=2))
    seen, empty = page.see(records), page.see([])
    text = words.answer(seen).html
    assert "all 2 joined runs compared with ddp" in text and "changes the time and not the result." in text
    reaches = "reaches 90.0% with a rate scaled with the batch after a warm-up and 70.0% without one, 50.0% with an unscaled rate"
    assert f"{reaches}; the small batch itself 95.0%" in text
    assert "No Record supports an answer yet" in words.answer(empty).html
    assert "different weights" in page.failures_table(seen).html
    for one in (seen, empty):
        for table in (
            page.curve_table,
            page.duties_table,
            rates.rules_table,
            rates.schedule_table,
            rates.batch_table,
            rates.precision_table,
        ):
            assert table(one).html
        assert "<p>" not in rates.decayed(one).html, "no pair with and without the decay"
        for figure in (
            figure_curves(one.same, one.curves),
            figure_distance(one.same),
            figure_rules(one.frame, one.scores),
            figure_schedule(one.frame, one.curves),
            figure_batch(one.frame, one.reach),
        ):
            assert figure.alt
    assert set(figure_schedule(seen.frame, seen.curves).data["devices"]) == {1, 2} and len(schedule_points(seen.frame)) == 3
    found = figure_rules(seen.frame, seen.scores).finding
    assert "a scaled rate reaches 90.0% after a warm-up and 70.0% without, an unscaled one 50.0%" in found


def test_a_rate_beside_the_schedule_shows_in_the_table_of_duties() -> None:
    held = trained(LOSSES, devices=2)
    # planted at its base rate throughout; 512 of a batch ask for twice that
    scaled = trained(LOSSES, devices=2, batch_size=256, rate_scaling="linear")
    assert page.held_its_schedule(held.training, held.measurement) and not page.held_its_schedule(scaled.training, scaled.measurement)
    assert "1 of 2 runs: the optimizers held the schedule&#x27;s rate" in page.duties_table(page.see([held, scaled])).html.replace(
        "'", "&#x27;"
    )
