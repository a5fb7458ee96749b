"""Define a training job of a user's own, load it in every process, and say what is wrong."""

import importlib.util
import linecache
import math
import numbers
import pickle
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from multigpu import paths
from multigpu.spec.errors import JobError, of_a_signal, own_line
from multigpu.spec.model import Optimizer
from multigpu.workloads.own.seals import opened, sealed
from multigpu.workloads.own.seeding import FIRST_OF_TORCH, LOADED, drawing_alike

Precision = Literal["fp32", "tf32", "bf16"]


def checked_rule(rule: Optimizer) -> Optimizer:
    """The rule, or a ValueError that names the number with which nothing can be trained."""
    limits = {
        "rate": (0.0, math.inf),
        "momentum": (0.0, 1.0),
        "weight_decay": (0.0, math.inf),
        "beta1": (0.0, 1.0),
        "beta2": (0.0, 1.0),
        "epsilon": (0.0, math.inf),
    }
    for name, (least, end) in limits.items():
        value = getattr(rule, name)
        number = isinstance(value, numbers.Real) and not isinstance(value, bool)
        if not number or not least <= value < end:
            upper = "" if math.isinf(end) else f" and below {end:g}"
            raise ValueError(f"{name} = {value!r}: give a number from {least:g}{upper}")
    return rule


def SGD(rate: float, momentum: float = 0.0, weight_decay: float = 0.0) -> Optimizer:
    """As `torch.optim.SGD`; a ValueError names a number that trains nothing."""
    return checked_rule(Optimizer("sgd", rate, momentum, weight_decay))


def Adam(
    rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.0,
) -> Optimizer:
    """As `torch.optim.Adam`; a ValueError names a number that trains nothing."""
    return checked_rule(Optimizer("adam", rate, 0.0, weight_decay, beta1, beta2, epsilon))


def AdamW(
    rate: float,
    beta1: float = 0.9,
    beta2: float = 0.999,
    epsilon: float = 1e-8,
    weight_decay: float = 0.01,
) -> Optimizer:
    """As `torch.optim.AdamW`; a ValueError names a number that trains nothing."""
    return checked_rule(Optimizer("adamw", rate, 0.0, weight_decay, beta1, beta2, epsilon))


@dataclass(frozen=True, eq=False)
class Job:
    """A model of one's own, what it reads and how it learns.

    model: a class or function that makes the `nn.Module` or the `keras.Model` (on TensorFlow), or
        such a model, which is copied.
    batch: `batch(n, generator)` gives (inputs, target) of n samples, drawn from the generator (a
        `torch.Generator`, or numpy's for Keras) and nothing else; or a DataLoader, or what gives
        one batch after another and can be read again; or, for Keras, a `tf.data.Dataset` of batches
        of any size. What is drawn from PyTorch's, numpy's and the module random's own generators
        is seeded by step and device. The first axis of every tensor counts samples.
        Inputs are a tensor, a tuple or list (an `nn.Module`'s arguments) or a dict (named ones);
        Keras takes each as its one input.
    loss: the mean over a batch's samples, `loss(output, target)`; for Keras, as there,
        `loss(target, output)`, whose values are averaged. None: the model itself gives the loss of
        all that a batch holds, as its output, or a part of it called loss; by `training_step` where
        it has that (Lightning's modules).
    optimizer: of `SGD`, `Adam` or `AdamW` of this package; or a function of the parameters that
        gives a `torch.optim.Optimizer`.
    batch_size: samples of each device.
    gradient_clip: the largest norm of all gradients together. schedule: a function of the step that
        gives a factor on the learning rate.
    micro_steps: parts that each device's batch is cut into, whose gradients are reduced once.
    shard: what FSDP2 gathers at a time: names or classes of modules, as in `multigpu.wrap`.
    evaluate: a function of an `nn.Module` that gives its score, one number: called with the model
        as it is made, in evaluation mode and without gradients; a comparison says what it takes.
    name: in Records and tables; "": that of the model.

    Raises:
        ValueError: what was given is none of these; the sentence says what to give.
    """

    model: Any
    batch: Any
    loss: Callable[[Any, Any], Any] | None = None
    optimizer: Any = field(default_factory=lambda: SGD(0.01))
    batch_size: int = 32
    precision: Precision = "fp32"
    name: str = ""
    gradient_clip: float | None = None
    schedule: Callable[[int], float] | None = None
    micro_steps: int = 1
    shard: Any = None
    evaluate: Callable[[Any], Any] | None = None
    made_at: str = field(init=False, default="")

    def __post_init__(self) -> None:
        caller = sys._getframe(2)  # behind the `__init__` that a dataclass has
        object.__setattr__(
            self, "made_at", f"{Path(caller.f_code.co_filename).name}, line {caller.f_lineno}"
        )
        if not callable(self.model):
            raise ValueError(
                f"model = {self.model!r}: give a class, a function without arguments that makes the"
                " model, or a model"
            )
        if not (callable(self.batch) or hasattr(self.batch, "__iter__")):
            raise ValueError(
                f"batch = {self.batch!r}: give a function batch(n, generator), a DataLoader or a"
                " tf.data.Dataset"
            )
        if self.loss is not None and not callable(self.loss):
            raise ValueError(
                f"loss = {self.loss!r}: give a function loss(output, target), or None where the"
                " model gives its loss"
            )
        if not isinstance(self.optimizer, Optimizer) and not callable(self.optimizer):
            told = repr(self.optimizer).partition(" (\n")[0]
            raise ValueError(
                f"optimizer = {told}: describe it with multigpu.SGD, multigpu.Adam or"
                " multigpu.AdamW, or give a function of the parameters that gives a"
                " torch.optim.Optimizer"
            )
        self._check_steps()
        if (
            not isinstance(self.batch_size, int)
            or isinstance(self.batch_size, bool)
            or self.batch_size < 1
        ):
            raise ValueError(
                f"batch_size = {self.batch_size!r}: give the samples of each device, 1 or more"
            )
        if self.precision not in get_args(Precision):
            raise ValueError(
                f"precision = {self.precision!r}: choose {', '.join(get_args(Precision))}"
            )

    def _check_steps(self) -> None:
        clip, parts = self.gradient_clip, self.micro_steps
        number = isinstance(clip, numbers.Real) and not isinstance(clip, bool)
        if clip is not None and not (number and 0 < clip < math.inf):
            raise ValueError(
                f"gradient_clip = {clip!r}: give the largest norm, a positive number, or None"
            )
        if self.schedule is not None and not callable(self.schedule):
            raise ValueError(
                f"schedule = {self.schedule!r}: give a function of the step that gives a factor on"
                " the learning rate"
            )
        if self.evaluate is not None and not callable(self.evaluate):
            raise ValueError(
                f"evaluate = {self.evaluate!r}: give a function of the model that gives one number"
            )
        if not isinstance(parts, int) or isinstance(parts, bool) or parts < 1:
            raise ValueError(
                f"micro_steps = {parts!r}: give into how many parts a batch is cut, 1 or more"
            )

    def telling(self, what: str) -> AbstractContextManager[None]:
        """Turn what this part of the job raises into a sentence that says where the job is made."""
        return telling(what, self.made_at)

    @property
    def rule(self) -> Optimizer:
        """The update as the study knows it; of one's own optimizer the dearest."""
        own: Optimizer = self.optimizer
        return own if isinstance(own, Optimizer) else Optimizer("adamw", 0.0)

    @property
    def own_update(self) -> list[str]:
        """Return what of the update is more than a rule of the study's."""
        told = {
            "optimizer": not isinstance(self.optimizer, Optimizer),
            "gradient_clip": self.gradient_clip is not None,
            "schedule": self.schedule is not None,
        }
        return [name for name, given in told.items() if given]

    @property
    def title(self) -> str:
        return self.name or getattr(self.model, "__name__", type(self.model).__name__).strip("<>")

    def pair(self, batch: Any) -> tuple[Any, Any]:
        """The inputs and the target of a batch; a JobError where it holds something else."""
        if not isinstance(batch, tuple | list) or len(batch) != 2:
            raise JobError(
                "batch gives no pair: give (inputs, target), or leave out loss where the model"
                f" gives its own ({self.made_at})"
            )
        inputs, target = batch
        return inputs, target


def sentence(what: str, error: BaseException, place: str = "") -> str:
    """Say what failed, why, and where."""
    why = (
        " ".join(str(error.msg if isinstance(error, SyntaxError) else error).split())
        or "no message"
    )
    place = own_line(error) or place
    return f"{what} fails with {type(error).__name__}: {why[:300]}" + (
        f" ({place})" if place else ""
    )


@contextmanager
def telling(what: str, place: str = "") -> Iterator[None]:
    """Turn what a user's code raises into a JobError's sentence, but full memory and Ctrl-C."""
    try:
        yield
    except (JobError, MemoryError):
        raise
    except BaseException as error:
        if type(error).__name__ == "OutOfMemoryError" or of_a_signal(error):
            raise
        raise JobError(sentence(what, error, place)) from error


def load_job(named: str) -> Job:
    """The job NAME in FILE.py, found here or in the repository; a JobError: there is none."""
    text, _, name = named.rpartition(":")
    if not text or not name.isidentifier():
        raise JobError(
            f"{named!r} names no job: give FILE.py:NAME, the file and the name of a multigpu.Job"
            " in it"
        )
    path = Path(text) if Path(text).is_file() else paths.REPOSITORY / text
    if not path.is_file():
        raise JobError(f"{text} is no file: give FILE.py:NAME")
    path = path.resolve()
    module_name = f"multigpu_job_{path.stem}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise JobError(f"{path.name} is no Python file: give FILE.py:NAME")
    if str(path.parent) not in sys.path:
        sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    # what a file draws while it is loaded, data among it, is the same in every process
    command_line, sys.argv = sys.argv, [str(path)]  # this process's own is nothing of the file's
    try:
        with telling(f"{path.name}"), drawing_alike(LOADED, FIRST_OF_TORCH):
            try:
                spec.loader.exec_module(module)
            except SystemExit as error:
                raise JobError(
                    f"{path.name} ends its process (SystemExit: {error.code}) while it is loaded,"
                    " which is done without a command line: give its options defaults, and put what"
                    f" ends it behind `if __name__ == '__main__'` ({own_line(error)})"
                ) from error
    finally:
        sys.argv = command_line
    found = getattr(module, name, None)
    if not isinstance(found, Job):
        known = [other for other, value in vars(module).items() if isinstance(value, Job)]
        there = (
            f"its jobs are {', '.join(known)}"
            if known
            else f"write {name} = multigpu.Job(...) in it, outside of functions and of"
            " `if __name__`, which is false where a file is loaded"
        )
        raise JobError(f"{path.name} has no multigpu.Job called {name!r}: {there}")
    return found


def pack(job: Job) -> bytes:
    """Make the job's sealed bytes for this user's processes; a JobError: it cannot travel."""
    import cloudpickle

    own = [
        sys.modules[name]
        for name in {getattr(part, "__module__", "") for part in (job.model, job.batch, job.loss)}
        if name
    ]
    own = [one for one in own if one.__name__.startswith("multigpu_job_")]
    for module in own:
        cloudpickle.register_pickle_by_value(module)
    try:
        return sealed(cloudpickle.dumps((list(sys.path), texts_of_cells(), job)))
    except Exception as error:
        raise JobError(
            f"job {job.title!r} cannot be handed to other processes ({type(error).__name__}:"
            f" {' '.join(str(error).split())[:150]}): move what defines it to a file and name it,"
            " FILE.py:NAME"
        ) from None
    finally:
        for module in own:
            cloudpickle.unregister_pickle_by_value(module)


def texts_of_cells() -> dict[str, list[str]]:
    """Give the lines of a notebook's cells by their names in tracebacks, to be quoted."""
    return {
        name: list(known[2])
        for name, known in linecache.cache.items()
        if ("ipykernel" in name or "ipython" in name) and len(known) == 4
    }


def unpack(path: Path) -> Job:
    """Read a job that `pack` wrote for this user; JobError: another did, whose code would run."""
    content = opened(path.read_bytes()) if path.is_file() else None
    if content is None:
        raise JobError(
            f"{path.name} was not packed by you on this machine, and reading it would run what its"
            " author put into it: compare the job itself again, as FILE.py:NAME or from the script"
            " that makes it"
        )
    places, texts, job = pickle.loads(content)
    sys.path.extend(place for place in places if place not in sys.path)
    for name, lines in texts.items():
        linecache.cache.setdefault(name, (len("".join(lines)), None, lines, name))
    assert isinstance(job, Job)
    return job
