"""Claims of document 004: neural machine translation with all-reduce, one process a GPU, on nodes of four V100."""

from __future__ import annotations

from multigpu.claims.core import Claim, Contrast, Predicate, where
from multigpu.claims.names import LAYERS, NMT, NMT_DDL, OVERLAPPED, efficiency, term

DDL = where(model=NMT_DDL, placement=OVERLAPPED, scaling="weak", batch_size=64)

CLAIMS = (
    Claim(
        number="C38",
        sentence="The step grows with the number of GPUs, yet at least half of linear speed remains.",
        documents=("004",),
        figure="360 / 450 / 560 / 680 / 690 / 700 ms on 1 / 2 / 4 / 8 / 12 / 16 GPUs: 8.2x on 16 (51%), 4.2x on 8 (53%)",
        predicate=Predicate(
            where=DDL,
            contrasts=(
                Contrast(
                    label="step time on N GPUs over one",
                    over=(term(),),
                    under=(term(1),),
                    quantity="step_time_s",
                    count_at_least=4,
                ),
                efficiency("efficiency", 0.50, count_at_least=4),
            ),
            scope="At the highest device count of one machine; the document's 8 to 16 GPUs talk over Ethernet.",
        ),
    ),
    Claim(
        number="C39",
        sentence="The 90 ms that a second GPU adds to the step are the transfer of the gradients.",
        documents=("004",),
        figure="450 - 360 ms for 717 MB over a 150 GB/s link (which needs 5 to 10 ms)",
        needs="the step of nmt004 on 1 and 2 GPUs, with and without communication; the all-reduce of its gradients alone stands under "
        "all-reduce algorithms and is no step",
    ),
    Claim(
        number="C40",
        sentence="Model parallelism does not scale for LSTMs.",
        documents=("004",),
        figure="no figure",
        predicate=Predicate(
            where=where(model=(NMT, NMT_DDL), placement=LAYERS, scaling="strong"),
            contrasts=(efficiency("efficiency with layers spread over GPUs", 0.50, direction="below", count_at_least=2),),
            scope="At the highest device count: less than half of linear speed with the same joined batch.",
        ),
    ),
    Claim(
        number="C41",
        sentence="Shuffling the corpus removes the periodic rise and fall of the step time.",
        documents=("004",),
        figure="no figure",
        needs="step times of an epoch in corpus order and shuffled, and their autocorrelation",
    ),
    Claim(
        number="C47",
        sentence="Four GPUs reach 51K words/s, and 16 keep more than three quarters of that rate a GPU.",
        documents=("004",),
        figure="51K words/s on 4 GPUs, 160K on 16 (78% of four times 51K)",
        predicate=Predicate(
            where=DDL,
            contrasts=(
                Contrast(
                    label="words/s on 4 GPUs",
                    over=(term(4),),
                    bound=51_000.0,
                    unit="words/s",
                    across="all",
                ),
                efficiency("rate a GPU against 4 GPUs", 0.75, under=4, count_at_least=5),
            ),
            scope="At the highest device count beyond 4; 16 GPUs need four machines as there.",
        ),
    ),
)
