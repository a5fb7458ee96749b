"""Claims of document 002: lecture notes on distributed stochastic gradient descent."""

from __future__ import annotations

from multigpu.claims.core import Claim, Contrast, Predicate, where
from multigpu.claims.names import ALL_REDUCE, EAGER_OR_CAPTURED, NMT, OVERLAPPED, REAL_IMAGES, RESNET50, scaling_ratio, term

SIMULATED = "the protocols run on a virtual clock with real gradients, and for real with an injected law of step times"
CURVES = "error against wall-clock time of each protocol, trained to a fixed budget with several seeds"

CLAIMS = (
    Claim(
        number="C25",
        sentence="What a ring all-reduce costs does not depend on the number of processes P; a central server's cost grows with P.",
        documents=("002",),
        figure="2N(P-1)/P against 2N(P-1) for N parameters",
        needs="ring and central server written out from sends and receives, timed for P = 2 to 8 with the bytes of every link counted",
    ),
    Claim(
        number="C26",
        sentence="With exponential step times, a synchronous update takes about P log P times as long as an asynchronous one.",
        documents=("002",),
        figure="about P log P; 72 at P = 20, an update; 2.72 at P = 8, a sample",
        needs=SIMULATED,
    ),
    Claim(
        number="C27",
        sentence="Asynchronous training is faster at first and ends at a higher error.",
        documents=("002",),
        figure="a sketch, without a figure",
        needs=CURVES,
    ),
    Claim(
        number="C28",
        sentence="A gradient is on average N/K updates old when it is applied.",
        documents=("002",),
        figure="N/K for N learners and K gradients an update",
        needs=SIMULATED + ", with every gradient's age recorded",
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
            where=where(model=(*RESNET50, NMT), placement=OVERLAPPED, scaling="weak", inputs="synthetic", execution="eager"),
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
        needs="a fully connected model of 42 million parameters split over 1 to 8 GPUs; 81 machines are out of reach",
    ),
    Claim(
        number="C32",
        sentence="Scaling the learning rate with the batch, after a warm-up, keeps accuracy.",
        documents=("002",),
        figure="rate 0.1 kn/256, 5 epochs of warm-up, ResNet-50 on 256 GPUs",
        needs="accuracy of the image models at 8 times the batch with and without scaled rate and warm-up, several seeds",
    ),
    Claim(
        number="C33",
        sentence="Dividing the learning rate by the staleness restores the convergence of asynchronous training.",
        documents=("002",),
        figure="30 learners, batch 128; a plot, without a figure",
        needs=CURVES + ", with and without the divided rate",
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
                Contrast(
                    label="final loss in bf16 over fp32",
                    over=(term(precision="bf16"),),
                    under=(term(precision="fp32"),),
                    quantity="loss_last",
                    direction="below",
                    bound=1.02,
                    counts="each",
                    across="all",
                    steps_at_least=500,
                    where=where(workload="cnn", inputs=REAL_IMAGES),
                ),
            ),
            scope="Throughput on one GPU; the loss after at least 500 steps on real images may be 2% higher at most.",
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
                    over=(term(1, framework="tensorflow", execution=("eager", "graph")),),
                    under=(term(1, framework="torch", execution="eager"),),
                    quantity="step_time_s",
                    direction="within",
                    bound=1.5,
                    across="all",
                ),
                Contrast(
                    label="step time in TensorFlow over PyTorch, in one setting",
                    over=(term(1, framework="tensorflow", execution=("eager", "graph")),),
                    under=(term(1, framework="torch", execution="eager"),),
                    quantity="step_time_s",
                    direction="outside",
                    across="any",
                ),
            ),
            scope="One GPU, the same model, batch and precision: at least 5% in one setting and at most 50% in all.",
        ),
    ),
    Claim(
        number="C45",
        sentence="K-batch-sync and K-batch-async converge as K-sync and K-async do, with shorter iterations.",
        documents=("002",),
        figure="no figure",
        needs=SIMULATED + "; " + CURVES,
    ),
    Claim(
        number="C46",
        sentence="A bigger batch gives any scaling efficiency one wants, until training no longer converges.",
        documents=("002",),
        figure="no figure",
        needs="efficiency against batch up to the largest that fits, and the accuracy reached at each after equal work",
    ),
    Claim(
        number="C48",
        sentence="Averaging separately trained models does not give the global model.",
        documents=("002",),
        figure="no figure",
        needs="models trained apart on disjoint shards, their average, and one model trained on all, evaluated on the same images",
    ),
)
