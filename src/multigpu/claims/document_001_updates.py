"""Claims of document 001 on the kind of variable update: which placement suits which convolutional network."""

from __future__ import annotations

from multigpu.claims.core import Claim, Contrast, Predicate, where
from multigpu.claims.names import ALL_REDUCE, COPIES, INCEPTION, OVERLAPPED, RESNET50, SERVER_CPU, SERVER_GPU, term

CNN = where(workload="cnn", scaling="weak", inputs="synthetic")
NOT_WORSE = 0.95
NCCL = (ALL_REDUCE, OVERLAPPED)

CLAIMS = (
    Claim(
        number="C21",
        sentence="A parameter server on the CPU is consistently the best choice for convolutional networks.",
        documents=("001",),
        figure='"consistently the best", without a figure',
        predicate=Predicate(
            where=CNN,
            contrasts=tuple(
                Contrast(
                    label=f"images/s of the CPU server over {name}",
                    over=(term(placement=SERVER_CPU),),
                    under=(term(placement=rivals),),
                    bound=NOT_WORSE,
                    counts="each",
                    count_at_least=2,
                    across="all",
                    models_at_least=2,
                )
                for name, rivals in (
                    ("a server on one GPU", (SERVER_GPU,)),
                    ("copies", (COPIES,)),
                    ("all-reduce", NCCL),
                )
            ),
            scope="No rival may be more than 5% faster in any model, batch, precision or device count measured.",
        ),
    ),
    Claim(
        number="C22",
        sentence="Replicas merged by NCCL are faster than replicas merged by plain copies when many GPUs take part.",
        documents=("001",),
        figure='"faster for many GPUs", without a figure',
        predicate=Predicate(
            where=CNN,
            contrasts=(
                Contrast(
                    label="images/s of NCCL over copies",
                    over=(term(placement=ALL_REDUCE),),
                    under=(term(placement=COPIES),),
                    count_at_least=4,
                ),
            ),
            scope="At the highest device count, 4 or more; neither side overlaps with the backward pass.",
        ),
    ),
    Claim(
        number="C42",
        sentence="On 2 GPUs a parameter server on one of the GPUs is sometimes better than one on the CPU.",
        documents=("001",),
        figure='"sometimes better for 2 GPUs"; AlexNet 1,863.8 against 1,240.7 images/s (1.50x)',
        predicate=Predicate(
            where=CNN,
            contrasts=(
                Contrast(
                    label="images/s of a server on one GPU over one on the CPU",
                    over=(term(placement=SERVER_GPU),),
                    under=(term(placement=SERVER_CPU),),
                    counts=(2,),
                    across="any",
                    models_at_least=3,
                ),
            ),
            scope="One example of at least 5% suffices; to refute it, three models must be measured without one.",
        ),
    ),
    Claim(
        number="C43",
        sentence="Inception and ResNet want variables on the CPU; AlexNet and VGG want replicas merged by NCCL.",
        documents=("001",),
        figure="the benchmarks' recommendation, without a figure",
        predicate=Predicate(
            where=CNN,
            contrasts=(
                Contrast(
                    label="images/s of the CPU server over NCCL for Inception and ResNet",
                    over=(term(placement=SERVER_CPU),),
                    under=(term(placement=NCCL),),
                    bound=NOT_WORSE,
                    count_at_least=2,
                    across="all",
                    models_at_least=2,
                    where=where(model=(*RESNET50, *INCEPTION)),
                ),
                Contrast(
                    label="images/s of NCCL over the CPU server for AlexNet and VGG",
                    over=(term(placement=NCCL),),
                    under=(term(placement=SERVER_CPU),),
                    count_at_least=2,
                    across="all",
                    models_at_least=2,
                    where=where(model=("alexnet", "vgg11", "vgg16", "vgg19")),
                ),
            ),
            scope="At the highest device count; the CPU server may be up to 5% slower and still count as the better choice.",
        ),
    ),
)
