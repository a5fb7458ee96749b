"""Measure what goes wrong without each line of `examples/capture_by_hand.py`.

python benchmarks/capture_pitfalls.py --gpus 2 --out data/benchmarks/capture_pitfalls.csv

An attempt leaves out or changes one line of the recipe, in processes of its own (a failed capture
spoils its process): it warms up, captures, replays, and trains the same batches again without a
graph. A row of the file is an attempt under `ddp` or `fsdp2`: how often it was tried (n), what
came of each try, and the error's first line. Needs torch alone and at least one GPU.
"""

import argparse
import csv
import multiprocessing
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

WIDTH, ROWS, LAYERS, REPLAYS = 256, 16, 4, 8
ATTEMPT_S = 40.0
"""After which an attempt that has not ended counts as one that hangs."""
RIGHT = 1e-9
"""Difference from training without a graph over its update, below which both trained alike."""


@dataclass(frozen=True)
class Attempt:
    """The recipe with one line left out or changed."""

    without: str  # what differs, as the table says it
    warmups: int = 12
    built_on: str = "side"  # "default": the model is built on the default stream
    warmed_on: str = "side"
    synchronize: bool = True
    error_mode: str = "thread_local"
    capturable: bool = True
    keep_gradients: bool = True
    read_loss: bool = False
    own_generator: bool = False
    batches: str = "copied"  # or "bound anew", "fewer rows"
    rate: str = "constant"  # or "a number, changed", "a tensor, changed"
    after_failure: bool = False
    reset: bool = True


ATTEMPTS = (
    Attempt("nothing: the recipe"),
    Attempt("no warm-up", warmups=0),
    Attempt("3 warm-ups", warmups=3),
    Attempt("11 warm-ups", warmups=11),
    Attempt("built on the default stream", built_on="default"),
    Attempt("warmed up on the default stream", warmed_on="default"),
    Attempt("built and warmed up on the default stream", built_on="default", warmed_on="default"),
    Attempt("not synchronized before the capture", synchronize=False),
    Attempt("error mode global (the default)", error_mode="global"),
    Attempt("optimizer not capturable", capturable=False),
    Attempt("gradients set to None in the step", keep_gradients=False),
    Attempt("loss.item() in the step", read_loss=True),
    Attempt("dropout by a generator that the graph does not know", own_generator=True),
    Attempt("a new batch bound to the name, not copied", batches="bound anew"),
    Attempt("a last batch of fewer rows, copied", batches="fewer rows"),
    Attempt("learning rate a number, changed later", rate="a number, changed"),
    Attempt("learning rate a tensor, changed later", rate="a tensor, changed"),
    Attempt("after a capture that failed in this process", after_failure=True),
    Attempt("graph not reset before the group ends", reset=False),
)


class Training:
    """One rank's model, optimizer and step, as `attempt` says."""

    def __init__(self, attempt: Attempt, placement: str, rank: int, device: torch.device) -> None:
        self.attempt, self.rank, self.device = attempt, rank, device
        torch.manual_seed(0)
        linear = [nn.Linear(WIDTH, WIDTH, dtype=torch.float64) for _ in range(LAYERS)]
        layers = [nn.Sequential(each, nn.GELU()) for each in linear]
        self.model: nn.Module = nn.Sequential(*layers).to(device)
        if placement == "fsdp2":
            for layer in self.model:
                fully_shard(layer)
            fully_shard(self.model)
        else:
            self.model = DistributedDataParallel(self.model, gradient_as_bucket_view=True)
        rate = torch.tensor(1e-3, device=device) if attempt.rate.startswith("a tensor") else 1e-3
        self.optimizer = torch.optim.AdamW(
            self.model.parameters(), rate, fused=True, capturable=attempt.capturable
        )
        self.generator = torch.Generator(device).manual_seed(rank)
        self.x = torch.zeros(ROWS, WIDTH, device=device, dtype=torch.float64)
        self.target = torch.zeros_like(self.x)

    def step(self) -> Tensor:
        """One training step; returns its loss."""
        self.optimizer.zero_grad(set_to_none=not self.attempt.keep_gradients)
        x = self.x
        if self.attempt.own_generator:
            kept = torch.empty_like(x).bernoulli_(0.9, generator=self.generator)
            x = x * kept
        loss = nn.functional.mse_loss(self.model(x), self.target)
        loss.backward()
        self.optimizer.step()
        if self.attempt.read_loss:
            loss.item()
        return loss.detach()

    def feed(self, number: int, bind: bool = False, rows: int = ROWS) -> None:
        """Give the step its batch `number`: copied to where the graph reads, or bound anew."""
        generator = torch.Generator(self.device).manual_seed(1000 * number + self.rank)
        x = torch.empty(rows, WIDTH, device=self.device, dtype=torch.float64)
        x.normal_(generator=generator)
        if bind:
            self.x, self.target = x, x.sin()
        else:
            self.x.copy_(x)
            self.target.copy_(x.sin())

    def change_rate(self, number: int) -> None:
        """Divide the learning rate by `number`."""
        for group in self.optimizer.param_groups:
            if isinstance(group["lr"], Tensor):
                group["lr"].fill_(1e-3 / number)
            else:
                group["lr"] = 1e-3 / number

    def values(self) -> Tensor:
        """All parameters that this rank holds, in one row."""
        held = [getattr(each, "_local_tensor", each) for each in self.model.parameters()]
        return torch.cat([each.detach().flatten() for each in held])


def train_captured(training: Training, side: torch.cuda.Stream, tell: Callable[[str], None]) -> Any:
    """Warm up, capture and replay; returns the graph. `tell` hears what is being done."""
    attempt = training.attempt
    warm = side if attempt.warmed_on == "side" else torch.cuda.default_stream()
    warm.wait_stream(torch.cuda.current_stream())
    tell("warm-up")
    with torch.cuda.stream(warm):
        for number in range(attempt.warmups):
            training.feed(number)
            training.step()
    if attempt.synchronize:
        torch.cuda.synchronize()
    side.wait_stream(warm)
    if attempt.after_failure:
        try:
            with torch.cuda.graph(torch.cuda.CUDAGraph(), stream=side):
                training.step().item()
        except RuntimeError:
            pass
    tell("capture")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side, capture_error_mode=attempt.error_mode):
        training.step()
    tell("replay")
    with torch.cuda.stream(side):
        for number in range(attempt.warmups, attempt.warmups + REPLAYS):
            if "changed" in attempt.rate:
                training.change_rate(number)
            last = number == attempt.warmups + REPLAYS - 1
            rows = ROWS // 2 if last and attempt.batches == "fewer rows" else ROWS
            training.feed(number, attempt.batches == "bound anew", rows)
            graph.replay()
    torch.cuda.synchronize()
    return graph


def train_eager(training: Training) -> None:
    """The same steps on the same batches, launched one by one."""
    attempt = training.attempt
    for number in range(attempt.warmups + REPLAYS):
        if "changed" in attempt.rate and number >= attempt.warmups:
            training.change_rate(number)
        training.feed(number)
        training.step()
    torch.cuda.synchronize()


def try_once(
    attempt: Attempt, placement: str, rank: int, ranks: int, store: str, pipe: Connection
) -> None:
    """One rank's try, in its own process; sends what it does and what came of it."""
    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    tell: Callable[[str], None] = lambda doing: pipe.send({"doing": doing})  # noqa: E731
    try:
        where = {"init_method": f"file://{store}", "rank": rank, "world_size": ranks}
        dist.init_process_group("nccl", device_id=device, **where)
        side = torch.cuda.Stream()
        built = side if attempt.built_on == "side" else torch.cuda.default_stream()
        with torch.cuda.stream(built):
            training = Training(attempt, placement, rank, device)
        first = training.values().clone()
        graph = train_captured(training, side, tell)
        tell("comparison")
        again = Training(attempt, placement, rank, device)
        train_eager(again)
        update = (again.values() - first).norm()
        difference = ((training.values() - again.values()).norm() / update).item()
        pipe.send({"doing": "shutdown", "difference": difference})
        if attempt.reset:
            graph.reset()
        dist.destroy_process_group()
    except BaseException as error:
        text = (str(error).strip() or type(error).__name__).splitlines()[0]
        pipe.send({"error": f"{type(error).__name__}: {text}"})
        pipe.close()
        os._exit(1)  # what a failed capture leaves cannot always be taken down


def outcome(told: list[dict[str, Any]], exit_code: int | None) -> str:
    """Return what came of one rank's try, from what it told and how its process ended (None: it
    had to be killed).
    """
    doing = [each["doing"] for each in told if "doing" in each]
    at = doing[-1] if doing else "start"
    if any("error" in each for each in told):
        return f"error in the {at}"
    if exit_code is None:
        return f"hangs in the {at}"
    differences = [each["difference"] for each in told if "difference" in each]
    if not differences:
        return f"process dies in the {at}"
    trained = "right" if differences[0] < RIGHT else "wrong, and nothing says so"
    return trained if exit_code == 0 else f"{trained}; process dies in the {at}"


Try = tuple[str, float, str]
"""Its outcome (the first rank's that is not right), the greatest difference, the error's first
line."""


def tried(context: Any, attempt: Attempt, placement: str, ranks: int, end: float) -> Try | None:
    """All ranks' try of one attempt; None: all tries had to end, at `end` on the monotonic clock,
    before this one told anything.
    """
    if time.monotonic() >= end:
        return None
    with tempfile.TemporaryDirectory() as folder:
        pipes, processes = [], []
        for rank in range(ranks):
            ours, theirs = context.Pipe(duplex=False)
            given = (attempt, placement, rank, ranks, f"{folder}/store", theirs)
            processes.append(context.Process(target=try_once, args=given))
            processes[-1].start()
            theirs.close()
            pipes.append(ours)
        told: list[list[dict[str, Any]]] = [[] for _ in pipes]
        until = min(time.monotonic() + ATTEMPT_S, end)
        open_pipes = dict(zip(pipes, told, strict=True))
        while open_pipes and (left := until - time.monotonic()) > 0:
            for pipe in wait(list(open_pipes), left):
                try:
                    open_pipes[pipe].append(pipe.recv())
                except EOFError:
                    del open_pipes[pipe]
        cut_off = bool(open_pipes) and until == end
        for process in processes:
            process.join(0.0 if cut_off else max(1.0, until - time.monotonic()))
        ended = [process.exitcode for process in processes]
        for process in processes:
            if process.is_alive():
                process.kill()
                process.join()
    if cut_off:
        return None
    found = [outcome(*each) for each in zip(told, ended, strict=True)]
    worst = next((each for each in found if each != "right"), "right")
    # a rank that waits for one that failed hangs: the failure is what happened
    worst = next((each for each in found if each.startswith("error")), worst)
    differences = [each["difference"] for rank in told for each in rank if "difference" in each]
    errors = [each["error"] for rank in told for each in rank if "error" in each]
    return worst, max(differences, default=float("nan")), next(iter(errors), "")


def rows_of(
    results: dict[tuple[Attempt, str], list[Try]], about: dict[str, Any]
) -> list[dict[str, Any]]:
    """A row an attempt and placement, with each outcome and how often it came."""
    rows = []
    for (attempt, placement), tries in results.items():
        if not tries:
            continue
        outcomes = Counter(each[0] for each in tries)
        said = "; ".join(
            name if count == len(tries) else f"{name} ({count} of {len(tries)})"
            for name, count in outcomes.most_common()
        )
        apart = [each[1] for each in tries if each[1] == each[1]]
        row = {"without": attempt.without, "placement": placement, "n": len(tries)}
        row |= {"outcome": said, "difference": f"{max(apart):.2g}" if apart else ""}
        rows.append(row | {"error": next((each[2] for each in tries if each[2]), "")} | about)
    return rows


def write_rows(path: Path, rows: list[dict[str, Any]]) -> None:
    """Write the file whole, or leave it as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part")
    with unfinished.open("w", newline="", encoding="utf8") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)
    unfinished.replace(path)


def try_all(
    running: dict[Future[Try | None], tuple[Attempt, str]],
    about: dict[str, Any],
    path: Path | None,
) -> tuple[list[dict[str, Any]], int]:
    """The rows of all tries, and how many there were; the file is written anew after each."""
    results: dict[tuple[Attempt, str], list[Try]] = {each: [] for each in running.values()}
    rows, count = list[dict[str, Any]](), 0
    for future in as_completed(running):
        if (found := future.result()) is None:
            continue
        results[running[future]].append(found)
        count += 1
        rows = rows_of(results, about)
        if path:
            write_rows(path, rows)
    return rows, count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=int(os.environ.get("WORLD_SIZE", "0")))
    parser.add_argument("--repeats", type=int, default=3, help="tries of each attempt")
    parser.add_argument("--beside", type=int, default=6, help="attempts at one time")
    parser.add_argument("--seconds", type=float, default=75, help="after which all end")
    parser.add_argument("--placements", default="ddp,fsdp2")
    parser.add_argument("--out", type=Path, help="a CSV file")
    told = parser.parse_args()
    if int(os.environ.get("RANK", "0")):
        return  # under torchrun the first process starts everyone's attempts
    here = torch.cuda.device_count()
    ranks = told.gpus or here
    if not 0 < ranks <= here:
        why = f"--gpus {ranks}: {here} are here, so give at most that"
        none = "no GPU is here, and a CUDA graph is captured on one: run this where there is one"
        print(why if here else none, file=sys.stderr)
        sys.exit(2)
    began = time.monotonic()
    for name in ("MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_USE_AGENT_STORE"):
        os.environ.pop(name, None)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["__main__", "torch", "torch.distributed.fsdp"])
    asked = [(each, place) for each in ATTEMPTS for place in told.placements.split(",")]
    about = {"gpus": ranks, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    with ThreadPoolExecutor(told.beside) as pool:
        running = {
            pool.submit(tried, context, *each, ranks, began + told.seconds): each
            for _ in range(told.repeats)
            for each in asked
        }
        rows, count = try_all(running, about, told.out)
    for row in rows:
        print(f"{row['placement']:6} {row['without']:52} {row['outcome']}  {row['error'][:90]}")
    print(f"{count} of {len(running)} tries in {time.monotonic() - began:.0f} s")


if __name__ == "__main__":
    main()
