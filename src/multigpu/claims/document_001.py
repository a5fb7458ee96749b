"""Claims of document 001: scaling of convolutional networks with Keras and TensorFlow's benchmarks."""

from __future__ import annotations

from multigpu.claims.core import Claim, Contrast, Predicate, Term, where
from multigpu.claims.names import (
    ALL_REDUCE,
    CIFAR_ALEXNET,
    CIFAR_DENSENETS,
    CIFAR_RESNETS,
    CONCATENATED,
    EAGER_OR_CAPTURED,
    INCEPTION,
    LARGE_CNNS,
    OVERLAPPED,
    PLAIN,
    REAL_IMAGES,
    RESNET50,
    SERVER_CPU,
    SERVER_GPU,
    efficiency,
    scaling_ratio,
    term,
)

CNN = where(workload="cnn", scaling="weak")
IMAGENET = CNN + where(model=LARGE_CNNS, inputs="synthetic")
CIFAR = CNN + where(inputs="synthetic", execution=PLAIN)

CLAIMS = (
    Claim(
        number="C12",
        sentence="Convolutional networks of tens of millions of parameters keep over 90% efficiency on 2, 4 and 8 GPUs.",
        documents=("001",),
        figure="median speedup 1.93x / 3.87x / 7.44x on 2 / 4 / 8 GPUs (96.4 / 96.8 / 93.0%)",
        predicate=Predicate(
            where=IMAGENET + where(placement=OVERLAPPED, batch_size=64, execution=EAGER_OR_CAPTURED),
            contrasts=(efficiency("efficiency", 0.90, counts=(2, 4, 8), across="most", models_at_least=2),),
            scope="Of models, device counts and executions at 64 images a GPU, more than half must keep 90%; two models at least.",
        ),
    ),
    Claim(
        number="C13",
        sentence="Synthetic input trains as fast as real input.",
        documents=("001",),
        figure='"no significant effect", without a figure',
        predicate=Predicate(
            where=CNN,
            contrasts=(
                Contrast(
                    label="images/s with real over synthetic input",
                    over=(term(**REAL_IMAGES),),
                    under=(term(inputs="synthetic"),),
                    direction="within",
                    counts="each",
                    across="all",
                ),
            ),
            scope="Equal within 5% at every device count measured; JPEG files by 12 workers a GPU, two batches ahead on a stream of "
            "their own, normalised on the GPU.",
        ),
    ),
    Claim(
        number="C14",
        sentence="Batch 64 instead of 32 has no effect on scaling.",
        documents=("001",),
        figure='"no significant effect", without a figure',
        predicate=Predicate(
            where=CNN + where(inputs="synthetic", model=(*RESNET50, *INCEPTION)),
            contrasts=(
                scaling_ratio(
                    "speedup at batch 64 over that at batch 32",
                    term(batch_size=64),
                    term(batch_size=32),
                    direction="within",
                    count_at_least=2,
                    across="all",
                ),
            ),
            scope="Equal within 5% at the highest device count, in every placement and execution measured.",
        ),
    ),
    Claim(
        number="C15",
        sentence="ResNet-50 trains faster than Inception-v3, though both have about 25 million parameters.",
        documents=("001",),
        figure="1.61x (median)",
        predicate=Predicate(
            where=CNN + where(inputs="synthetic"),
            contrasts=(
                Contrast(
                    label="images/s of ResNet-50 over Inception-v3",
                    over=(term(model=RESNET50),),
                    under=(term(model=INCEPTION),),
                    counts="each",
                    across="most",
                ),
            ),
            scope="Equal batch a GPU and placement; more than half of the settings must show it.",
        ),
    ),
    Claim(
        number="C16",
        sentence="Channels first (NCHW) is clearly faster than channels last (NHWC), whatever the number of GPUs.",
        documents=("001",),
        figure="1.22x to 1.73x, typically 1.25x (large images) and 1.50x (small); its notes also say 1.10x to 1.25x",
        predicate=Predicate(
            where=CNN + where(precision="fp32", inputs="synthetic"),
            contrasts=(
                Contrast(
                    label="images/s of channels first over channels last",
                    over=(term(layout="channels_first"),),
                    under=(term(layout="channels_last"),),
                    counts="each",
                    across="all",
                    models_at_least=2,
                ),
            ),
            scope="fp32, as there; every model, placement and device count measured: one counterexample refutes.",
        ),
    ),
    Claim(
        number="C17",
        sentence="Models below about 400,000 parameters do not scale; larger small ones do.",
        documents=("001",),
        figure="on 2 GPUs 75.7% (269,787 parameters), 96 to 103% from 464,219 on; its own 364,772 (a narrowed DenseNet: 357,491 "
        "trained) gives 2.00x",
        predicate=Predicate(
            where=CIFAR + where(placement=SERVER_CPU),
            contrasts=(
                efficiency(
                    "efficiency of resnet20",
                    0.90,
                    direction="below",
                    counts=(2,),
                    across="most",
                    where=where(model="resnet20", batch_size=128),
                ),
                efficiency(
                    "efficiency of larger models",
                    0.90,
                    counts=(2,),
                    across="most",
                    models_at_least=2,
                    where=where(model=(*CIFAR_RESNETS[1:], *CIFAR_DENSENETS), batch_size=(64, 128)),
                ),
            ),
            scope="2 GPUs, variables on the CPU, batch 128 (DenseNets 64). The correct DenseNets have over a million parameters.",
        ),
    ),
    Claim(
        number="C18",
        sentence="On small images AlexNet scales worst; ResNet-20 scales poorly too, and better with NCCL.",
        documents=("001",),
        figure="on 2 GPUs AlexNet 58.7%, ResNet-20 75.7% and 82.1% with NCCL, all others 96% and more",
        predicate=Predicate(
            where=CIFAR + where(batch_size=128),
            contrasts=(
                scaling_ratio(
                    "speedup of AlexNet over that of each ResNet",
                    term(model=CIFAR_ALEXNET),
                    term(model=CIFAR_RESNETS),
                    direction="below",
                    bound=0.95,
                    counts=(2,),
                    across="all",
                    models_at_least=3,
                    where=where(placement=SERVER_CPU),
                ),
                scaling_ratio(
                    "speedup of ResNet-20 with NCCL over that with variables on the CPU",
                    term(placement=ALL_REDUCE),
                    term(placement=SERVER_CPU),
                    counts=(2,),
                    where=where(model="resnet20"),
                ),
            ),
            scope="2 GPUs, 128 images each.",
        ),
    ),
    Claim(
        number="C19",
        sentence="A memory clock 5% lower costs up to 15% of the throughput.",
        documents=("001",),
        figure="84.7% to 98.8% of the throughput at 95% of the clock",
        untestable="Clocks are never touched here, and all GPUs of one machine run at one memory clock. A stand-in stands on the page "
        "about hardware: GPUs of equal arithmetic and unequal memory.",
    ),
    Claim(
        number="C20",
        sentence="A pair of GPUs across the PCIe switch is slower than one behind it, except with variables on the CPU.",
        documents=("001",),
        figure="1.17x (variables on GPU) and 1.22x (NCCL); 1.01x with variables on the CPU",
        untestable="All pairs of GPUs here are linked by NVLink: no pair talks across PCIe.",
    ),
    Claim(
        number="C23",
        sentence="Concatenating the towers' predictions gives the same training as averaging their gradients.",
        documents=("001",),
        figure="a question there, without a figure",
        predicate=Predicate(
            where=CNN + where(processes="one", inputs="synthetic"),
            frameworks=("torch",),
            contrasts=(
                Contrast(
                    label="how far 40 steps move the variables: predictions concatenated over gradients averaged",
                    over=(term(placement=CONCATENATED),),
                    under=(term(placement=SERVER_GPU),),
                    quantity="parameter_change",
                    direction="within",
                    bound=1.02,
                    count_at_least=2,
                    across="all",
                    paired=True,
                ),
            ),
            scope="Equal within 2% after warm-up and timed steps, variables on GPU 0 and one process both times, repeat by repeat: "
            "equal ones begin alike and see the same batches. In float64 a test finds the variables themselves equal to 1e-13 "
            "(tests/engines/test_parallel.py), and page 12 trains both to the end of a budget on CPUs. What concatenating costs is no part "
            "of the claim.",
        ),
    ),
    Claim(
        number="C24",
        sentence="Training is slow at first and then steady, so warm-up must be left out.",
        documents=("001",),
        figure='"much faster" after warm-up, without a figure',
        predicate=Predicate(
            where=CNN,
            contrasts=(
                Contrast(
                    label="time of a warm-up step over a timed step",
                    over=(Term(),),
                    quantity="warmup_slowdown",
                    counts="each",
                    across="most",
                ),
            ),
            scope="Mean of the first 10 steps after building against the mean of the timed ones, in more than half of the settings.",
        ),
    ),
    Claim(
        number="C50",
        sentence="A machine of mixed GTX 1070 and 1080 cards on slow links reaches 4.5x on 6 GPUs and 1.6x on 2.",
        documents=("001",),
        figure="4.487x on 6 GPUs, 1.615x on 2 (Inception-v3)",
        untestable="It is a sentence about one machine, seven GTX cards on PCIe, which is not at hand.",
    ),
)
