"""Models of others, odd batches and wrong arguments under `multigpu.wrap`, in one process."""

import copy
import os
import re
import subprocess
import sys
import warnings
from collections import UserDict, namedtuple
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from multigpu import SGD, Adam, AdamW, wrap
from multigpu.engines.torch.blocks import blocks_of, check_held_once, check_ties
from multigpu.user_model.wrap.placed import Placed
from tests.multigpu.runner.launched import PATHS
from tests.multigpu.user_model.cases import Block, apart, batch, loss_of, momentum, tiny

REPOSITORY = Path(__file__).parents[3]


def losses_of(model: nn.Module, loss: Any, batches: list[Any], **settings: Any) -> list[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = wrap(model, loss, momentum, "one", **settings)
        return [trainer.step(each).item() for each in batches]


class Pair(nn.Module):
    """Takes two inputs by position or name; returns its loss in whatever way `form` says."""

    def __init__(self, form: str = "output") -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(3, 2).double()
        self.form = form

    def forward(self, first: Tensor, second: Tensor, labels: Tensor | None = None) -> Any:
        output = self.layer(first * second)
        if labels is None:
            return output
        loss = nn.functional.cross_entropy(output, labels)
        if self.form == "dict":
            return UserDict(loss=loss, logits=output)
        if self.form == "object":
            return namedtuple("Output", "loss logits")(loss, output)
        return loss


def pair_batch() -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    first = torch.randn(4, 3, generator=generator, dtype=torch.float64)
    return first, first.flip(0), torch.tensor([0, 1, 1, 0])


def test_batches_and_losses_of_every_structure_train_alike() -> None:
    first, second, labels = pair_batch()
    named = {"first": first, "second": second}
    wanted = losses_of(Pair(), nn.CrossEntropyLoss(), [((first, second), labels)] * 3)
    assert wanted[2] < wanted[0]
    for model, loss, given in (
        (Pair(), nn.CrossEntropyLoss(), (named, labels)),
        (Pair(), nn.CrossEntropyLoss(), [UserDict(named), labels]),
        (Pair("scalar"), None, named | {"labels": labels}),
        (Pair("dict"), None, UserDict(named | {"labels": labels})),
        (Pair("object"), None, [first, second, labels]),
    ):
        assert losses_of(model, loss, [given] * 3) == pytest.approx(wanted, abs=1e-12)


def test_terms_counted_by_the_user_weigh_micro_batches() -> None:
    """Of three samples two are padding alone in parts: a mean over tokens, not over samples."""
    words, target = batch(0, 0, 4)
    target = target.clone()
    target[2:, 1:] = -100

    def counted(part: Any) -> Tensor:
        return (part[1] != -100).sum()

    whole = losses_of(tiny(), loss_of, [(words, target)] * 3)
    cut = losses_of(tiny(), loss_of, [(words, target)] * 3, micro_steps=2, count=counted)
    wrong = losses_of(tiny(), loss_of, [(words, target)] * 3, micro_steps=2)
    assert cut == pytest.approx(whole, abs=1e-12)
    assert abs(wrong[0] - whole[0]) > 1e-4


@pytest.mark.parametrize(
    "description, plain",
    [
        (SGD(0.1, 0.9, 0.01), lambda p: torch.optim.SGD(p, 0.1, 0.9, weight_decay=0.01)),
        (Adam(0.1, 0.8, 0.9, 1e-6), lambda p: torch.optim.Adam(p, 0.1, (0.8, 0.9), 1e-6)),
        (AdamW(0.1), lambda p: torch.optim.AdamW(p, 0.1)),
        (torch.optim.NAdam, torch.optim.NAdam),
    ],
    ids=["sgd", "adam", "adamw", "class"],
)
def test_optimizers_as_described(description: Any, plain: Callable[..., Any]) -> None:
    model = tiny()
    updates = plain(model.parameters())
    trainer = wrap(tiny(), loss_of, description, "one")
    for step in range(3):
        updates.zero_grad()
        words, target = batch(step, 0, 4)
        loss_of(model(words), target).backward()
        updates.step()
        trainer.step((words, target))
    assert apart(trainer.model.state_dict(), model.state_dict()) < 1e-12


def test_each_step_draws_from_its_own_number(tmp_path: Path) -> None:
    """With a seed a resumed training draws what the uninterrupted one drew; others' draws stay."""
    trainer = wrap(tiny(dropout=0.5), loss_of, momentum, "one", seed=3)
    trainer.step(batch(0, 0, 4))
    trainer.save(tmp_path / "state.pt")
    torch.manual_seed(9)
    wanted = trainer.step(batch(1, 0, 4))
    drawn = torch.rand(())
    torch.manual_seed(9)
    assert torch.rand(()) == drawn
    again = wrap(tiny(dropout=0.5), loss_of, momentum, "one", seed=3)
    again.load(tmp_path / "state.pt")
    assert torch.equal(again.step(batch(1, 0, 4)), wanted)


def test_the_module_given_is_the_one_trained_and_modes_stay() -> None:
    model = tiny(dropout=0.5)
    before = model.head.weight.detach().clone()
    trainer = wrap(model, loss_of, momentum, "one")
    assert trainer.model is model and model.head.weight is model.words.weight
    trainer.step(batch(0, 0, 4))
    assert not torch.equal(before, model.head.weight)
    model.blocks[0].eval()
    first = trainer.evaluate(batch(1, 0, 4))
    assert torch.equal(first, trainer.evaluate(batch(1, 0, 4)))  # no dropout
    assert model.training and not model.blocks[0].training


def test_blocks_are_those_that_repeat_and_hold_most() -> None:
    model = tiny()
    assert list(blocks_of(model, None)) == ["blocks.0", "blocks.1", "blocks.2"]
    assert list(blocks_of(model, Block)) == list(blocks_of(model, "Block"))
    assert list(blocks_of(model, ["blocks.1", model.head])) == ["blocks.1", "head"]
    layers = nn.Sequential(nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2)), nn.Embedding(99, 9))
    assert list(blocks_of(layers, None)) == ["0.0", "0.1"]
    stages = nn.Sequential(*(nn.Sequential(*(Block(2, 0.0) for _ in range(n))) for n in (1, 2, 3)))
    assert len(blocks_of(stages, None)) == 6
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(2, 2), nn.ReLU()) for _ in range(3)))
    assert list(blocks_of(layers, None)) == ["0", "1", "2"]
    assert blocks_of(nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.ReLU()), None) == {}
    with pytest.raises(ValueError, match="fits no module"):
        blocks_of(model, "Layer")
    with pytest.raises(ValueError, match="lies in the block"):
        blocks_of(model, ["blocks.1", "blocks.1.wide"])
    with pytest.raises(ValueError, match=r"'words.weight' and 'head.weight' are one"):
        check_ties(model, blocks_of(model, ["head"]))


@pytest.mark.parametrize("held", [list, tuple, lambda each: {"of": [*each]}, set, next])
def test_a_parameter_that_fsdp2_would_leave_behind_is_refused(held: Callable[..., Any]) -> None:
    """Also in a list that holds itself; what recurrent layers list follows their parameters."""
    model = nn.Sequential(nn.Linear(2, 3), nn.LSTM(3, 4), nn.Sequential(nn.Linear(4, 1)))
    itself: list[Any] = [model[0].bias.detach(), torch.zeros(2)]
    itself.append(itself)
    model[0].harmless = itself
    check_held_once(model)
    kept = held(iter([model[0].weight]))
    if isinstance(kept, nn.Parameter):  # a plain attribute, as by object.__setattr__
        vars(model[2])["kept"] = kept
    else:
        model[2].kept = kept
    with pytest.raises(ValueError, match=r"^2\.kept holds the parameter '0\.weight', too"):
        check_held_once(model)
    with pytest.raises(ValueError, match=r"^2\.kept holds the parameter '0\.weight', too"):
        Placed._shard(SimpleNamespace(module=model, blocks={}))  # type: ignore[arg-type]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "placement": ({"placement": "fsdp"}, "placement='fsdp' is unknown: give one of"),
    "execution": ({"execution": "graph"}, "execution='graph' is unknown"),
    "clip": ({"gradient_clip": -1}, "gradient_clip=-1 is not a positive number"),
    "nan": ({"gradient_clip": float("nan")}, "gradient_clip=nan"),
    "micro": ({"micro_steps": 0}, "micro_steps=0"),
    "seed": ({"seed": 1.5}, "seed=1.5"),
    "schedule": ({"schedule": lambda step: "half"}, "schedule\\(0\\) gave 'half'"),
    "schedule text": ({"schedule": "cosine"}, "cannot be called"),
    "plateau": (
        {"schedule": torch.optim.lr_scheduler.ReduceLROnPlateau},
        "ReduceLROnPlateau, which needs a measure",
    ),
    "instance": ({"optimizer": momentum(tiny().parameters())}, "give its class, torch.optim.SGD"),
    "other tensors": (
        {"optimizer": lambda _: momentum(tiny().parameters())},
        "build it from its argument",
    ),
    "no optimizer": ({"optimizer": 0.1}, "optimizer=0.1 is no optimizer"),
    "lbfgs": ({"optimizer": torch.optim.LBFGS}, "LBFGS, whose step wants a closure"),
    "function": ({"model": lambda x: x}, "not a torch.nn.Module"),
    "meta": ({"model": nn.Linear(1, 1, device="meta")}, "on the meta device"),
    "lazy": ({"model": nn.LazyLinear(1)}, "a lazy module"),
    "frozen": ({"model": tiny().requires_grad_(False)}, "nothing to train"),
    "parallel": ({"model": nn.DataParallel(tiny())}, "give the module inside, model.module"),
    "loss": ({"loss": "mse"}, "loss='mse' cannot be called"),
    "device": ({"device": "cuda:0"}, "PyTorch finds no GPU"),
    "recompute": ({"model": nn.Linear(1, 1), "recompute": True}, "repeats no block"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_wrong_arguments_are_refused_in_a_sentence(name: str) -> None:
    if name == "device" and torch.cuda.is_available():
        pytest.skip("there is a GPU")
    given, said = REFUSED[name]
    told = {"model": tiny(), "loss": loss_of, "optimizer": momentum, "placement": "one"} | given
    with pytest.raises(ValueError, match=said) as refusal:
        wrap(**told)
    assert "\n" not in str(refusal.value)


@pytest.mark.parametrize(
    "loss, given, said",
    [
        (loss_of, batch(0, 0, 4)[0], "must be a pair"),
        (loss_of, {"x": batch(0, 0, 4)[0]}, "the batch is a dict"),
        (loss_of, ("text", "text"), "no tensor with a first axis"),
        (loss_of, batch(0, 0, 0), "no sample"),
        (loss_of, batch(0, 0, 1), "micro_steps=2, and the batch has 1 samples"),
        (None, batch(0, 0, 4)[0], "the loss has shape"),
        (lambda output, target: output, batch(0, 0, 4), "not one number"),
    ],
)
def test_wrong_batches_are_refused_in_a_sentence(loss: Any, given: Any, said: str) -> None:
    trainer = wrap(tiny(), loss, momentum, "one", micro_steps=2)
    with pytest.raises(ValueError, match=said):
        trainer.step(given)


def test_a_target_counts_the_samples_and_a_loss_that_would_learn_is_told() -> None:
    with pytest.warns(UserWarning, match="the loss has a parameter 'weight'"):
        trainer = wrap(nn.EmbeddingBag(9, 2), nn.Bilinear(2, 2, 1), momentum, "one")
    bags = torch.zeros(7, dtype=torch.int64), torch.tensor([0, 3])
    assert trainer.inner.count((bags, torch.zeros(2, 2))) == 2


def test_another_models_state_changes_nothing() -> None:
    trainer = wrap(tiny(), loss_of, momentum, "one")
    before = trainer.state_dict()
    for state, said in (
        (tiny(width=6).state_dict(), "not what trainer.state_dict"),
        (wrap(tiny(width=6), loss_of, momentum, "one").state_dict(), "has shape"),
        (wrap(nn.Linear(1, 1), loss_of, momentum, "one").state_dict(), "of another model"),
    ):
        with pytest.raises(ValueError, match=said):
            trainer.load_state_dict(state)
    assert apart(before["model"], trainer.state_dict()["model"]) == 0


def test_compiling_that_fails_goes_on_eagerly() -> None:
    def failing(graph: Any, inputs: Any) -> Any:
        raise RuntimeError("no compiler here")

    with pytest.warns(UserWarning, match="no compiler here"):
        trainer = wrap(
            tiny(), loss_of, momentum, "one", "compiled", compile_options={"backend": failing}
        )
        losses = [trainer.step(batch(step, 0, 4)).item() for step in range(3)]
    assert trainer.form == "eager"
    wanted = losses_of(tiny(), loss_of, [batch(step, 0, 4) for step in range(3)])
    assert losses == pytest.approx(wanted, abs=1e-12)


def test_a_gpt_of_transformers_trains() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.GPT2Config(
        n_layer=2, n_head=2, n_embd=16, vocab_size=50, n_positions=16,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
    )  # fmt: skip

    def model() -> Any:
        torch.manual_seed(0)
        return transformers.GPT2LMHeadModel(config).double().train()

    words = torch.randint(0, 50, (4, 8), generator=torch.Generator().manual_seed(0))
    given = transformers.BatchEncoding({"input_ids": words, "labels": words})
    wanted = []
    reference = model()
    updates = momentum(reference.parameters())
    for _ in range(3):
        updates.zero_grad()
        loss = reference(**given).loss
        loss.backward()
        updates.step()
        wanted.append(loss.item())
    assert "transformer.h.1" in blocks_of(model(), None)
    # its loss is computed in fp32
    assert losses_of(model(), None, [given] * 3) == pytest.approx(wanted, abs=1e-5)
    recomputed = losses_of(model(), None, [given] * 3, recompute=True, micro_steps=2)
    assert recomputed == pytest.approx(wanted, abs=1e-5)


def test_a_resnet_of_torchvision_trains() -> None:
    try:
        import torchvision
    except (ImportError, RuntimeError) as error:  # or one of another build of PyTorch
        pytest.skip(f"no torchvision: {error}")
    torch.manual_seed(0)
    model = torchvision.models.resnet18(num_classes=3)
    plain = copy.deepcopy(model)
    assert len(blocks_of(model, None)) == 8
    generator = torch.Generator().manual_seed(0)
    given = (torch.randn(6, 3, 32, 32, generator=generator), torch.arange(6) % 3)
    updates, wanted = momentum(plain.parameters()), []
    for _ in range(4):
        updates.zero_grad()
        loss = nn.functional.cross_entropy(plain(given[0]), given[1])
        loss.backward()
        updates.step()
        wanted.append(loss.item())
    assert losses_of(model, nn.CrossEntropyLoss(), [given] * 4) == pytest.approx(wanted, rel=1e-5)


def started(count: int, *arguments: str) -> str:
    command = [
        sys.executable, "-m", "torch.distributed.run", "--standalone",
        "--nproc-per-node", str(count), *arguments,
    ]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": PATHS, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=110, check=False, env=environment
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.mark.parametrize("page", ["README.md", "report/use.md"])
def test_a_page_shows_the_example_that_is_run_here(page: str) -> None:
    script = (REPOSITORY / "examples" / "train_any_module.py").read_text(encoding="utf-8")
    code = script.partition('"""\n\n')[2]
    assert code and code in (REPOSITORY / page).read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_examples_script_goes_on_with_fewer_processes(tmp_path: Path) -> None:
    script = str(REPOSITORY / "examples" / "train_any_module.py")
    first = started(2, script, str(tmp_path / "epoch.pt"))
    second = started(1, script, str(tmp_path / "epoch.pt"))
    assert first.count("step 16:") == 2 and second.count("step 32:") == 1

    # two processes that print at once may share a line
    losses = [re.findall(r"loss (\d+\.\d{4})", text) for text in (first, second)]
    assert len(losses[0]) == 2 and len(set(losses[0])) == 1, "both evaluate the same model"
    assert float(losses[1][0]) < float(losses[0][0])
