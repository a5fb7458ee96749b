"""The protocols over Ray actors: every gradient accounted for, replayed to the last bit, a killed
actor costs its own batch.
"""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from benchmarks.over_ray import RayWorker, main, run_over_ray

from multigpu_study.synchrony.server import LEFT, Server
from multigpu_study.synchrony.simulate import simulate
from multigpu_study.synchrony.store import SynchronyStore
from tests.multigpu.runner.listening import overheard
from tests.refusals import refused
from tests.study.synchrony.cases import check_accounts, replay, trained

LAW = {"kind": "constant", "time_s": 0.02}


def asked(protocol: str, gradients: int | None = None, **fields: Any) -> Any:
    return trained(
        protocol,
        gradients,
        **{"workers": 2, "clock": "real", "engine": "ray", "law": LAW, "updates": 12, **fields},
    )


def test_a_worker_computes_waits_and_is_skipped() -> None:
    """Without Ray: the actor's own methods."""
    experiment = asked("async")
    worker, problem = RayWorker(experiment.model_dump_json(), 1), experiment.open()
    parameters = problem.initial(0)
    np.testing.assert_array_equal(worker.batch(parameters, 3), problem.gradient(parameters, 1, 3))
    worker.skip(4)
    assert (
        worker.batch(parameters, 4) is None
        and worker.batch(parameters, 5) is not None
        and worker.ready()
    )


def test_a_cluster_that_does_not_start_is_a_failed_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def init(**_: object) -> None:
        raise Exception("the node did not answer within 30 s\nand more")

    monkeypatch.setitem(
        sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, init=init)
    )
    monkeypatch.setattr("benchmarks.over_ray.check_ray", lambda: None)
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    refused(
        "^Ray did not start: the node did not answer within 30 s$",
        run_over_ray,
        asked("async"),
        error=RuntimeError,
    )
    wrong = (
        "this experiment has engine 'processes': run it with real.run_real, or choose engine 'ray'"
    )
    refused(wrong, run_over_ray, asked("async", engine="processes"))


def test_the_grid_is_run_over_ray_or_refused_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """What a run over Ray returns is that of the simulator here."""
    monkeypatch.setattr("benchmarks.over_ray.importlib.util.find_spec", lambda name: None)
    assert main([]) == 2
    assert "Ray is not installed: pip install 'multigpu[ray]'" in capsys.readouterr().err
    monkeypatch.setattr("benchmarks.over_ray.check_ray", lambda: None)
    monkeypatch.setattr("benchmarks.over_ray.run_over_ray", simulate)
    assert main(["--quiet", "--records", str(tmp_path)]) == 0
    engines = Counter(record.experiment.engine for record in SynchronyStore(tmp_path))
    assert engines["ray"] == engines["processes"] == 9


@pytest.fixture
def ray() -> Iterator[Any]:
    found = pytest.importorskip("ray", reason="the extra `ray` is not installed")
    os.environ["RAY_AUTH_MODE"] = "disabled"
    try:
        found.init(
            num_cpus=2, include_dashboard=False, log_to_driver=False, object_store_memory=80 * 2**20
        )
    except Exception as error:  # its own limit of 30 s to start, on a machine with much else to do
        pytest.skip(f"Ray did not start: {str(error).splitlines()[0][:120]}")
    yield found
    found.shutdown()


def check(run: Server) -> None:
    """Every gradient is accounted for, and arrivals replayed give the same weights."""
    np.testing.assert_array_equal(replay(run.experiment, run.events), run.parameters)
    check_accounts(run, 12)
    assert run.curve[-1].loss < run.curve[0].loss and run.end_s > 0.1


@pytest.mark.slow
def test_a_cluster_of_its_own_is_reached_by_nobody_outside() -> None:
    pytest.importorskip("ray", reason="the extra `ray` is not installed")
    with overheard() as heard:
        check(run_over_ray(asked("k_sync", 1)))
    assert heard, "a look that came too late would see nobody listen"


@pytest.mark.slow
def test_an_actor_that_dies_costs_its_own_batch(ray: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    class Mortal(RayWorker):
        def batch(self, parameters: Any, ticket: int) -> Any:
            if self.worker == 1 and ticket == 2:
                os._exit(1)
            return super().batch(parameters, ticket)

    monkeypatch.setattr("benchmarks.over_ray.RayWorker", Mortal)
    run = run_over_ray(asked("k_batch_async", 3))
    check(run)
    assert run.accounts.lost == 1 and [
        event.worker for event in run.events if event.kind == LEFT
    ] == [1]
