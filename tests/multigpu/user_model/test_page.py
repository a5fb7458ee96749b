"""A comparison's page as it goes on, whether its ways fit, what measures each row, and its first
line where nothing was traced: of planted Records.
"""

import random
import re

import pytest

from multigpu.records.record import Record
from multigpu.spec.run import Run
from multigpu.user_model.candidates import changed
from multigpu.user_model.drawings import PART_OF, shown_memory, shown_parts, six_parts
from multigpu.user_model.fits import GIB, memories_of, room_of, those_that_fit
from multigpu.user_model.page import page, remarks
from multigpu.user_model.placed import ONE, command_of
from multigpu.user_model.verdict import answer
from tests.factory import make_machine
from tests.multigpu.user_model.test_told import BATCH, DDP, STEADY, described, planted, result_of


def holding(gib: float) -> dict[str, list[tuple[float, float]]]:
    """What a batch holds, so that `BATCH` samples hold so many GiB."""
    return {"as written": [(0.0, gib * GIB / BATCH)]}


def runs_of(*devices: int) -> list[Run]:
    return [planted("ddp", count, [10.0])[0].run for count in devices]


def test_a_way_that_cannot_fit_is_not_launched_and_the_largest_batch_is_told() -> None:
    """A share of 1 GiB for each of two processes of a computer of 2, and all of it for one."""
    machine = make_machine(0).model_copy(update={"memory_gib": 2.0})
    one, two = runs_of(1, 2)
    fitting, refused = those_that_fit([one, two], described(activations=holding(1.5)), machine)
    assert fitting == [one] and [*refused] == ["ddp"]
    assert re.match(r"its step needs 1\.5\d* GiB of a device that has 1, so it was", refused["ddp"])
    (told,) = re.findall(r"a batch of (\d+) would fit", refused["ddp"])
    assert BATCH / 1.5 - 2 <= int(told) <= BATCH / 1.5
    whole = those_that_fit([one, two], described(activations=holding(0.9)), machine)
    assert whole == ([one, two], {})
    assert those_that_fit([one, two], described(), machine) == ([one, two], {}), "nothing is known"
    kept = described(activations={"as written": [(1.2 * GIB, 1.0)]})
    assert "no batch would fit" in those_that_fit([two], kept, machine)[1]["ddp"]


def test_gpus_keep_a_gib_for_themselves() -> None:
    machine = make_machine(2)
    assert room_of(machine, "cuda", 2) == (min(machine.gpu_memory_gib) - 1) * GIB


def test_whether_it_fits_comes_first_where_it_does_not_and_last_where_it_does() -> None:
    points = planted("ddp", 1, STEADY), planted("ddp", 2, DDP)
    result = result_of(*points, activations=holding(0.5))
    assert answer(result)[-1].startswith("Every way whose memory can be forecast fits: ")
    assert re.search(r"needs most, 0\.5\d* of ", answer(result)[-1])
    assert "ddp takes a batch of up to " in answer(result)[-1]
    result.refused["zero1"] = "its step needs 99 GiB of a device that has 1, so it was not launched"
    assert answer(result)[0].startswith("1 way cannot fit. zero1: its step needs 99 GiB")
    assert not any("fit" in line for line in answer(result_of(*points)))


def test_memory_is_drawn_with_the_line_where_a_device_is_full() -> None:
    points = planted("ddp", 1, STEADY), planted("ddp", 2, DDP)
    assert shown_memory(result_of(*points)) == ""
    result = result_of(*points, activations=holding(0.5))
    drawn = shown_memory(result)
    assert drawn.count("class='forecast'") == 2 and "measured" not in drawn
    room = room_of(result.records[0].machine, "cpu", 2) / GIB
    line, peak = 100 / 1.05, memories_of(result.runs, result.described)["ddp"].peak(BATCH) / GIB
    assert f"left:{line:.2f}%" in drawn and f"width:{line * peak / room:.2f}%" in drawn


def test_a_page_that_goes_on_says_so_and_loads_itself_anew() -> None:
    result = result_of(planted("ddp", 1, STEADY), planted("ddp", 2, DDP), activations=holding(0.5))
    going_on, over = (page(result, is_over=done) for done in (False, True))
    assert (
        'http-equiv="refresh"' in going_on and "As far as measured, 3 launches so far" in going_on
    )
    assert "refresh" not in over and "As far as" not in over
    assert "<svg" in over and "<svg" not in going_on
    for told in (going_on, over):
        assert "times one device" in told and "Does it fit" in told


def test_what_evaluating_takes_is_told_beside_the_steps() -> None:
    points = planted("ddp", 1, STEADY), planted("ddp", 2, DDP)
    told = "evaluate gives 2.31 before training and takes 12.0 ms on one of this computer's CPUs"
    assert any(
        told in remark for remark in remarks(result_of(*points, score=2.31, evaluate_s=0.012))
    )
    assert not any("evaluate" in remark for remark in remarks(result_of(*points)))


def test_each_row_has_the_command_that_measures_it() -> None:
    one, two = runs_of(1, 2)
    job = described(file=True, job="mine.py:job")
    plain = "python -m multigpu compare mine.py:job --placements ddp"
    assert command_of(one, job) == f"{plain} --device-type cpu --out again"
    assert command_of(two, job) == f"{plain} --devices 2 --device-type cpu --out again"
    both = two.model_copy(update={"execution": "compiled_captured", "recompute": True})
    assert "--levers compiled,captured,recompute --device-type" in command_of(both, job)
    called = command_of(both, described(file=False))
    assert called.startswith("multigpu.compare(job, 2, ['ddp'], out='again', levers=['compiled',")
    shown = page(result_of(planted("ddp", 1, STEADY), planted("ddp", 2, DDP), job="mine.py:job"))
    assert f"<code>{plain} --devices 2 --device-type cpu --out again</code>" in shown


@pytest.mark.parametrize(
    ("name", "change", "told"),
    [
        ("ddp", {"execution": "compiled_captured"}, "ddp, compiled and captured"),
        ("", {"execution": "eager", "recompute": True}, f"{ONE}, recomputed"),
        ("zero1", {"execution": "compiled", "micro_steps": 2}, "zero1, compiled, 2 micro-steps"),
    ],
)
def test_a_way_that_is_left_out_has_the_name_it_would_have(
    name: str, change: dict[str, object], told: str
) -> None:
    assert changed(name, change) == told


def step_of(cause: str, large: float, draw: random.Random) -> tuple[dict[str, float], str]:
    """What one device, replicas that share nothing and `ddp` take, in ms, and ranks' own steps, so
    that one cause takes `large` ms and each other part at most a third of that; and its sentence.
    """
    small = [large * draw.uniform(0.1, 0.3) for _ in range(4)]
    one, shared, merged, waited = small
    if cause == "computing":
        one = large
    elif cause == "sharing":
        shared = large
    elif cause == "merging":
        merged = large
    elif cause == "input":
        waited = large
    sentences = {
        "computing": "Computing takes ",
        "sharing": "Sharing this machine takes ",
        "merging": "Merging takes ",
        "input": r"Your batch\(\) costs ",
    }
    steps = {"one": one, "replicas": one + shared, "ddp": one + shared + merged, "input": waited}
    return steps, sentences[cause]


CAUSES = ("computing", "sharing", "merging", "input")


@pytest.mark.parametrize("cause", CAUSES)
@pytest.mark.parametrize("large", [3.0, 20.0, 50.0, 400.0, 7000.0])
def test_the_largest_cause_is_named_first_without_a_trace(cause: str, large: float) -> None:
    draw = random.Random(f"{cause} {large}")
    steps, sentence = step_of(cause, large, draw)
    waited = steps["input"]

    def taking(placement: str, devices: int, ready_ms: float) -> list[Record]:
        each = [(ready_ms + waited) * draw.uniform(0.995, 1.005) for _ in range(3)]
        return planted(placement, devices, each, ready_ms=ready_ms, waited_ms=waited)

    result = result_of(
        taking("ddp", 1, steps["one"]),
        taking("independent", 2, steps["replicas"]),
        taking("ddp", 2, steps["ddp"]),
        batch_s=waited / 1e3,
    )
    place = 1 if cause == "computing" else 0  # which says nothing that the verdict does not
    assert re.match(sentence, answer(result)[place]), answer(result)
    parts = six_parts(result, "ddp")
    assert sum(parts.values()) == pytest.approx(result["ddp"].row["fed_step_s"], rel=0.01)
    told = {"sharing": "rest"}.get(cause, cause)
    assert max(parts, key=lambda part: parts[part]) == told
    assert "by differences, not traced" in shown_parts(result)
    assert set(PART_OF.values()) == {"input", "launch", "computing", "waiting", "merging", "rest"}
