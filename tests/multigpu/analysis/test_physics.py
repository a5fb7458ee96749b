"""What a Record contradicts, on both sides of each limit, and nothing of one that is sound."""

import math
from datetime import UTC, datetime, timedelta
from typing import Any

from multigpu.analysis.limits import bound_units_per_s
from multigpu.analysis.physics import date_fault, machine_fault, physics
from multigpu.placements.step_bytes import step_bytes
from multigpu.records.record import Record
from multigpu.workloads import description_of
from tests.factory import make_machine, make_record

GPU, MHZ = "NVIDIA H200", 1980
UNITS = "units are not those of its batches"
OF_ITS_PLACEMENT = "bytes predicted are not those of its placement"


def images(**more: Any) -> Record:
    return make_record(**{"placement": "ddp", "units_per_s": 1000.0, "workload": "cnn"} | more)


def altered(record: Record, **values: Any) -> Record:
    """The Record with other values of its measurement."""
    assert record.measurement is not None
    measurement = record.measurement.model_copy(update=values)
    return record.model_copy(update={"measurement": measurement})


def said(record: Record) -> list[str]:
    return [name for name, _ in physics(record, {GPU: MHZ})]


def of_units(record: Record, units: int) -> list[str]:
    return said(altered(record, units=units, padded_units=units))


def test_a_sound_record_contradicts_nothing() -> None:
    sound = images()
    m = sound.measurement
    for record in (sound, images(devices=4, scaling="strong"), images(placement="zero2")):
        assert said(record) == []
    for record in (
        altered(sound, wall_s=0.0),
        altered(sound, units=0),
        altered(sound, padded_units=m.units - 1),
        sound.model_copy(update={"measurement": None}),
    ):
        assert said(record) == ["no positive time or units"]


def test_a_batch_holds_as_many_samples_as_it_says() -> None:
    """On each device, or over all of them; of sentences and sequences as many units in each."""
    for more, samples in (
        ({"devices": 2}, 2 * 16 * 30),
        ({"devices": 4, "scaling": "strong"}, 16 * 30),
        ({"devices": 2, "timed_steps": 20}, 2 * 16 * 20),
    ):
        record = images(batch_size=16, **more)
        assert of_units(record, samples) == []
        assert of_units(record, samples + 1) == of_units(record, samples - 1) == [UNITS]
    tokens = {"workload": "gpt", "model": "gpt_tiny", "units_per_s": 1000.0, "batch_size": 4}
    for length, each in ((None, 16), (8, 8)):
        record = make_record(**tokens, sequence_length=length)
        assert of_units(record, 2 * 4 * 30 * each) == []
        assert of_units(record, 2 * 4 * 30 * (each + 1)) == [UNITS]
    words = {"workload": "nmt", "batch_size": 4, "units_per_s": 1000.0, "inputs": "synthetic"}
    record = make_record(**words, sequence_length=7)
    assert UNITS not in of_units(record, 2 * 4 * 30 * 15)
    assert UNITS in of_units(record, 2 * 4 * 30 * 14)


def test_bytes_are_those_counted_predicted_and_of_the_placement() -> None:
    sound = images(devices=2)
    moved = sound.measurement.moved_bytes
    (kind,) = moved
    assert said(altered(sound, moved_bytes=None)) == []
    assert said(altered(sound, moved_bytes=moved | {"all_gather": 0})) == []
    more = {kind: moved[kind] + 1}
    assert said(altered(sound, moved_bytes=more)) == ["bytes counted are not those predicted"]
    assert said(altered(sound, moved_bytes=more, predicted_bytes=more)) == [OF_ITS_PLACEMENT]
    job = {"workload": "nmt", "placement": "exp4", "batch_size": 4, "inputs": "synthetic"}
    record = make_record(**job, devices=2, units_per_s=1000.0, sequence_length=7)
    model = description_of(record.run)
    first, second = (v.name for v in model.variables if v.kind == "embedding")
    units = 2 * 4 * 30 * 15
    for ahead, expected in ((0, []), (1, [OF_ITS_PLACEMENT])):
        lookups = [{first: 4 * 7, second: 4 * (8 + ahead)}] * 2
        bytes_ = step_bytes(record.run, model, lookups)
        told = {"units": units, "padded_units": units}
        assert said(altered(record, moved_bytes=bytes_, predicted_bytes=bytes_, **told)) == expected
    sparse = make_record(
        **job | {"inputs": "lengths_000"}, devices=2, units_per_s=1000.0, sequence_length=None
    )
    least = step_bytes(sparse.run, model, [{}, {}])
    for less, expected in ((0, []), (1, [OF_ITS_PLACEMENT])):
        told = {name: count - less for name, count in least.items()}
        assert said(altered(sparse, moved_bytes=told, predicted_bytes=told)) == expected


def test_steps_and_events_fill_the_wall_clock() -> None:
    """Between 0.88 and 1.02 of it, the slowest replica's."""
    sound = images()
    m = sound.measurement
    few = [steps[1:] for steps in m.step_time_s]
    assert said(altered(sound, step_time_s=few)) == ["not as many steps as it names"]
    for share, wrong in ((0.87, True), (0.89, False), (1.01, False), (1.03, True)):
        steps = [[share * step for step in own] for own in m.step_time_s]
        steps[1] = [step / 2 for step in steps[1]]
        by_steps = altered(sound, step_time_s=steps)
        by_events = altered(sound, event_time_s=[0.5 * m.wall_s, share * m.wall_s])
        assert said(by_steps) == ["its steps do not fill its wall clock"] * wrong
        assert said(by_events) == ["its events do not fill its wall clock"] * wrong


def test_training_moves_losses_and_variables_alike_on_all_replicas() -> None:
    still = "a loss that did not move, or is no number"
    sound = images()
    for loss in ([], [2.0, 1.0, 2.0], [2.0, math.nan], [math.inf, 1.0]):
        assert said(altered(sound, loss=loss)) == [still]
    for change in (0.0, math.inf, math.nan):
        assert said(altered(sound, parameter_change=change)) == ["variables that did not change"]
    assert said(altered(sound, replicas_agree=False)) == ["replicas that do not agree"]
    assert said(altered(sound, replicas_agree=None)) == []


def test_devices_are_neither_throttled_nor_too_full_nor_of_another_machine() -> None:
    sound = images()
    state = sound.measurement.device_states[0]
    for mhz, expected in ((0.61 * MHZ, []), (0.59 * MHZ, ["a throttled clock"])):
        slowed = state.model_copy(update={"sm_clock_mhz": int(mhz)})
        assert said(altered(sound, device_states=[state, slowed])) == expected
        assert [*physics(altered(sound, device_states=[state, slowed]), {})] == []
    full = altered(sound, peak_memory_gib=[1.5, 140.5])
    assert said(full) == ["a peak above the GPU's memory"]
    assert said(altered(sound, peak_memory_gib=[math.nan, 140.4])) == []
    other = sound.model_copy(update={"machine": make_machine(4, "8x-nvidia-h200")})
    assert said(other) == ["its GPUs are not those of its machine"]


def test_a_rate_stays_below_its_bound() -> None:
    """Of all devices; with copies of a model in parts, over the smaller group of the two."""
    parts = {"workload": "stacks", "model": "mlp_tiny", "placement": "tensor_split", "devices": 6}
    for record, group in (
        (images(), None),
        (make_record(**parts, model_parallel=3, batch_size=12, scaling="strong"), 2),
        (make_record(**parts, model_parallel=6, batch_size=12, scaling="strong"), 6),
    ):
        m, run = record.measurement, record.run
        bound = bound_units_per_s(
            description_of(run), GPU, run.precision, run.devices, m.units / 30, m.moved_bytes, group
        ).units_per_s
        for share, wrong in ((1.01, False), (1.03, True)):
            wall_s = m.units / (share * bound)
            times = {
                "step_time_s": [[wall_s / 30] * len(own) for own in m.step_time_s],
                "event_time_s": [wall_s] * run.devices,
            }
            found = dict(physics(altered(record, wall_s=wall_s, **times), {GPU: MHZ}))
            told = found.get("a rate above its bound", "")
            assert told.startswith(f"{share * bound:,.0f} ") == wrong


def test_a_machines_name_says_how_many_gpus_it_has_of_which_kind() -> None:
    for machine, wrong in (
        (make_machine(8), False),
        (make_machine(4, "8x-nvidia-h200"), True),
        (make_machine(8, "8x-nvidia-a100"), True),
        (make_machine(8, "somebody's"), False),
        (make_machine(0, "8x-nvidia-h200"), False),
        (make_machine(4, "8x-nvidia-h200").model_copy(update={"hosts": 2}), False),
    ):
        assert bool(machine_fault(images().model_copy(update={"machine": machine}))) == wrong


def test_a_record_is_measured_after_its_commit_and_before_now() -> None:
    committed = {
        "0123456": datetime(2026, 1, 2, 3, tzinfo=UTC),
        "fffffff": datetime(2025, 1, 1, tzinfo=UTC),
    }
    record = images()

    def fault(at: datetime | str, **more: Any) -> str:
        at = at if isinstance(at, str) else at.isoformat()
        return date_fault(record.model_copy(update={"measured_at": at} | more), committed)

    assert fault("yesterday") == "'yesterday' is no date"
    assert fault("2026-01-02T03:00:00") == ""
    now = datetime.now(UTC)
    assert fault(now + timedelta(minutes=9)) == ""
    assert fault(now + timedelta(minutes=11)).endswith("is to come")
    assert fault("2026-01-02T02:51:00+00:00") == ""
    assert fault("2026-01-02T02:49:00+00:00").endswith("is before its commit")
    assert fault("2025-01-01T00:00:00+00:00", commit="unknown") == ""
    assert fault("2024-12-31T00:00:00+00:00", commit="unknown").endswith("is before its commit")
