"""Claims of document 002: lecture notes on distributed stochastic gradient descent."""

from __future__ import annotations

from typing import Literal

from multigpu.claims.core import Claim, CollectivePredicate, Contrast, Predicate, Term, where, where_collective
from multigpu.claims.names import (
    ALL_REDUCE,
    EAGER_OR_CAPTURED,
    MATRICES,
    MLP,
    NMT,
    OVERLAPPED,
    PLAIN,
    RESNET50,
    efficiency,
    scaling_ratio,
    term,
)
from multigpu.claims.training import TrainingPredicate, where_training
from multigpu.hosts.grid import SLOW_BYTES


def _growth(method: str, name: str, hosts: int, direction: Literal["above", "below"], bound: float) -> Contrast:
    """The time of one all-reduce on so many hosts over that of the same on 2."""
    over, under = (Term(select=where_collective(method=method), devices=count) for count in (hosts, 2))
    return Contrast(
        label=f"time of the {name} on {hosts} hosts over 2",
        over=(over,),
        under=(under,),
        quantity="time_s",
        direction=direction,
        bound=bound,
        across="all",
    )


CLAIMS = (
    Claim(
        number="C25",
        sentence="What a ring all-reduce costs does not depend on the number of processes P; a central server's cost grows with P.",
        documents=("002",),
        figure="2N(P-1)/P against 2N(P-1) for N parameters",
        predicate=CollectivePredicate(
            where=where_collective(device_type="cpu", dtype="fp32", bytes=SLOW_BYTES, delay_us=0, compute_ms=0),
            contrasts=(
                # 2N(P-1)/P is N at P = 2 and below 2N at every P
                _growth("ring", "ring", 4, "below", 2.0),
                _growth("ring", "ring", 8, "below", 2.0),
                # 2N(P-1) is 3 times as much at P = 4, and 7 times at P = 8: at least half of that
                _growth("central_server", "central server", 4, "above", 1.5),
                _growth("central_server", "central server", 8, "above", 3.5),
            ),
            scope="What the document means, computers on a network with one link each: hosts made as network namespaces of one computer, "
            "4 MiB on each of 2, 4 and 8 over links of 50 Mbit/s, one process a host, both written out from sends and receives over "
            "gloo. GPUs joined by NVLink reach several others at once; the all-reduce page shows both algorithms there.",
        ),
    ),
    Claim(
        number="C29",
        sentence="Overlapping all-reduce with the backward pass keeps more efficiency.",
        documents=("002",),
        figure="95% with overlap, 84% without (two frameworks)",
        predicate=Predicate(
            where=where(workload="cnn", model=RESNET50, scaling="weak", inputs="synthetic", execution=EAGER_OR_CAPTURED),
            contrasts=(
                scaling_ratio(
                    "efficiency with overlap over that without",
                    term(placement=OVERLAPPED),
                    term(placement=ALL_REDUCE),
                    count_at_least=4,
                ),
            ),
            scope="One framework and one algorithm, all-reduce during or after the backward pass, on one host (the document: many).",
        ),
    ),
    Claim(
        number="C30",
        sentence="Slower computation flatters scaling efficiency.",
        documents=("002",),
        figure='"an unfair uplift", without a figure; P100 about 3x a K40',
        predicate=Predicate(
            where=where(model=(*RESNET50, NMT), placement=OVERLAPPED, scaling="weak", inputs="synthetic", execution=PLAIN),
            contrasts=(
                Contrast(
                    label="rate on one GPU in fp32 over bf16",
                    over=(term(1, precision="fp32"),),
                    under=(term(1, precision="bf16"),),
                    direction="below",
                    bound=1 / 1.25,
                    across="all",
                ),
                scaling_ratio(
                    "efficiency in fp32 over that in bf16",
                    term(precision="fp32"),
                    term(precision="bf16"),
                    bound=1.02,
                    count_at_least=4,
                ),
            ),
            scope="fp32 stands in for a slower GPU: the same gradients travel in float32, only the computation is slower.",
        ),
    ),
    Claim(
        number="C31",
        sentence="Model parallelism speeds up large models, with diminishing returns.",
        documents=("002",),
        figure="2.2x on 8 machines (42 million parameters), 12x on 81 (1.7 billion)",
        predicate=Predicate(
            where=where(model=MLP, placement=MATRICES, model_parallel=None, scaling="strong", batch_size=(1024, 8192), precision="bf16"),
            contrasts=(
                Contrast(label="rate on N GPUs over one, one joined batch", over=(term(),), under=(term(1),), count_at_least=2),
                efficiency("rate a GPU on N GPUs over that on 2", 0.95, under=2, direction="below", count_at_least=4),
            ),
            protocol="Warm-up left out; one joined batch of 1,024 or 8,192 rows, whatever the number of GPUs.",
            scope="The document's 42 million parameters cut over the GPUs of one host, where 8 machines gave it 2.2x; 1.7 billion on 81 "
            "machines are out of reach.",
        ),
    ),
    Claim(
        number="C32",
        sentence="Scaling the learning rate with the batch, after a warm-up, keeps accuracy.",
        documents=("002",),
        figure="rate 0.1 kn/256, 5 epochs of warm-up, ResNet-50 on 256 GPUs",
        predicate=TrainingPredicate(
            where=where_training(workload="cnn", placement=OVERLAPPED, precision="fp32"),
            contrasts=(
                Contrast(
                    label="accuracy at 8 times the batch, rate scaled and warmed up, over that at the batch itself",
                    over=(Term(select=where_training(rate_scaling="linear", schedule="warmup")),),
                    under=(Term(select=where_training(rate_scaling="none", schedule="constant"), devices=1),),
                    quantity="accuracy",
                    direction="above",
                    bound=0.98,
                    counts=(8,),
                    across="all",
                ),
            ),
            scope="Residual networks of CIFAR's kind on digits and on images that a planted teacher labelled, equal epochs, 8 times the "
            "batch; the document's is ResNet-50 on ImageNet at 32 times. At most 2% of the accuracy may be lost.",
        ),
    ),
    Claim(
        number="C34",
        sentence="Reduced precision raises throughput without hurting accuracy.",
        documents=("002",),
        figure="no figure",
        predicate=Predicate(
            where=where(scaling="weak", execution=EAGER_OR_CAPTURED),
            contrasts=(
                Contrast(
                    label="rate on one GPU in bf16 over fp32",
                    over=(term(1, precision="bf16"),),
                    under=(term(1, precision="fp32"),),
                    where=where(model=(*RESNET50, NMT), placement=OVERLAPPED, inputs="synthetic"),
                    models_at_least=2,
                ),
            ),
            scope="Throughput: on one GPU.",
        ),
        further=(
            TrainingPredicate(
                where=where_training(workload="cnn", placement=OVERLAPPED, rate_scaling="none", schedule="constant"),
                machines="gpu",
                contrasts=(
                    Contrast(
                        label="accuracy trained in bf16 over fp32",
                        over=(Term(select=where_training(precision="bf16"), devices=1),),
                        under=(Term(select=where_training(precision="fp32"), devices=1),),
                        quantity="accuracy",
                        bound=0.98,
                        across="all",
                    ),
                ),
                scope="Accuracy: of a residual network of CIFAR's kind on held-out images that a planted teacher labelled, equal epochs, "
                "batch and rate; at most 2% of it may be lost.",
            ),
        ),
    ),
    Claim(
        number="C44",
        sentence="The computation of one iteration differs by up to 50% between frameworks.",
        documents=("002",),
        figure="up to 50%",
        predicate=Predicate(
            where=where(scaling="weak", inputs="synthetic"),
            contrasts=(
                Contrast(
                    label="step time in TensorFlow over PyTorch, in every setting",
                    over=(term(1, framework="tensorflow", execution=PLAIN, processes="one"),),
                    under=(term(1, framework="torch", execution="eager", processes=("one", "per_device")),),
                    quantity="step_time_s",
                    direction="within",
                    bound=1.5,
                    across="all",
                ),
                Contrast(
                    label="step time in TensorFlow over PyTorch, in one setting",
                    over=(term(1, framework="tensorflow", execution=PLAIN, processes="one"),),
                    under=(term(1, framework="torch", execution="eager", processes=("one", "per_device")),),
                    quantity="step_time_s",
                    direction="outside",
                    across="any",
                ),
            ),
            scope="One GPU, the same model, batch and precision: at least 5% in one setting and at most 50% in all. One process drives the "
            "one GPU in any case; PyTorch's two ways of starting it are a setting each.",
        ),
    ),
    Claim(
        number="C46",
        sentence="A bigger batch gives any scaling efficiency one wants, until training no longer converges.",
        documents=("002",),
        figure="no figure",
        predicate=Predicate(
            where=where(model=RESNET50, placement=OVERLAPPED, scaling="weak", inputs="synthetic", execution="captured", precision="bf16"),
            frameworks=("torch",),
            contrasts=(
                scaling_ratio(
                    "efficiency at 512 images a GPU over that at 16",
                    term(batch_size=512),
                    term(batch_size=16),
                    count_at_least=4,
                ),
                efficiency("efficiency at 512 images a GPU", 0.95, where=where(batch_size=512), count_at_least=4),
            ),
            scope="Efficiency: ResNet-50, whole steps as one CUDA graph, on at least 4 GPUs of one host; 95% stands for any one wants.",
        ),
        further=(
            TrainingPredicate(
                where=where_training(workload="cnn", placement=OVERLAPPED, precision="fp32", rate_scaling="linear", schedule="warmup"),
                machines="gpu",
                contrasts=(
                    Contrast(
                        label="accuracy at 8 times the batch over that at the batch itself",
                        over=(Term(),),
                        under=(Term(devices=1),),
                        quantity="accuracy",
                        bound=0.98,
                        counts=(8,),
                        across="all",
                    ),
                    Contrast(
                        label="accuracy at 128 times the batch over that at the batch itself",
                        over=(Term(),),
                        under=(Term(devices=1),),
                        quantity="accuracy",
                        direction="below",
                        bound=0.8,
                        counts=(128,),
                        across="all",
                    ),
                ),
                scope="Accuracy: a residual network of CIFAR's kind on held-out images that a planted teacher labelled, the rate scaled "
                "with the batch and warmed up, equal epochs (equal work): kept within 2% at 8 times the batch of 128, at least a fifth of "
                "it lost at 128 times. The two parts are of two models, since the accuracy of ResNet-50 is out of reach.",
            ),
        ),
    ),
)
