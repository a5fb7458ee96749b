"""Claims of document 004: neural machine translation with all-reduce, one process a GPU, on nodes of four V100."""

from __future__ import annotations

from typing import Any

from multigpu.claims.core import Claim, Contrast, Predicate, where
from multigpu.claims.names import ALL_REDUCE, CORPUS, LAYERS, NMT, NMT_DDL, OVERLAPPED, OWN, PLAIN, efficiency, term

MEMORY = 1.57
"""The 0.95 quantile of chi^2 with 20 degrees of freedom, over 20."""
STEP_MEMORY: dict[str, Any] = {"quantity": "step_memory", "unit": ""}
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
            scope="At the highest device count of one machine; the document's 8 to 16 GPUs talk over Ethernet. Steps to 16 with compute "
            "slept, over links of namespaces, are no Records of a training step and decide nothing.",
        ),
    ),
    Claim(
        number="C39",
        sentence="The 90 ms that a second GPU adds to the step are the transfer of the gradients.",
        documents=("004",),
        figure="450 - 360 ms for 717 MB over a 150 GB/s link (which needs 5 to 10 ms)",
        predicate=Predicate(
            where=where(model=NMT_DDL, scaling="weak", batch_size=64, execution=PLAIN),
            contrasts=(
                Contrast(
                    label="step on 2 GPUs with all-reduce after backward over one",
                    over=(term(2, placement=ALL_REDUCE),),
                    under=(term(1, placement=ALL_REDUCE),),
                    quantity="step_time_s",
                ),
                Contrast(
                    label="step on 2 GPUs without communication over one",
                    over=(term(2, placement="independent"),),
                    under=(term(1, placement="independent"),),
                    quantity="step_time_s",
                    direction="within",
                ),
                Contrast(
                    label="growth with communication over growth without",
                    over=(term(2, placement=ALL_REDUCE), term(1, placement="independent")),
                    under=(term(2, placement="independent"), term(1, placement=ALL_REDUCE)),
                    quantity="step_time_s",
                ),
            ),
            scope="Whether what a second GPU adds vanishes without communication, on one host with NVLink and NCCL. It says nothing of the "
            "document's own 90 ms, which its links' rate does not explain.",
        ),
    ),
    Claim(
        number="C40",
        sentence="Model parallelism does not scale for LSTMs.",
        documents=("004",),
        figure="no figure",
        predicate=Predicate(
            where=where(model=(NMT, NMT_DDL), placement=LAYERS, scaling="strong", model_parallel=None, micro_batches=None),
            contrasts=(efficiency("efficiency with layers spread over GPUs", 0.50, direction="below", count_at_least=2),),
            scope="At the highest device count: less than half of linear speed with the same joined batch, without micro-batches, as "
            "there; a layer runs over whole sentences before the next begins.",
        ),
    ),
    Claim(
        number="C41",
        sentence="Shuffling the corpus removes the periodic rise and fall of the step time.",
        documents=("004",),
        figure="no figure",
        predicate=Predicate(
            where=where(model=NMT, placement=OVERLAPPED, inputs=CORPUS, batching=OWN, batch_size=64, execution=PLAIN),
            contrasts=(
                Contrast(label="memory of the step time in corpus order", over=(term(1, shuffle=False),), bound=MEMORY, **STEP_MEMORY),
                Contrast(
                    label="memory of the step time shuffled", over=(term(1, shuffle=True),), direction="below", bound=MEMORY, **STEP_MEMORY
                ),
                Contrast(
                    label="memory in corpus order over shuffled",
                    over=(term(1, shuffle=False),),
                    under=(term(1, shuffle=True),),
                    quantity="step_memory",
                ),
            ),
            timed_steps=380,
            protocol="Every step of one epoch; Ljung and Box's Q over 20 lags, divided by 20: 1 without memory, and below 1.57 in 95% of "
            "series without any.",
            scope="One GPU, 000's model at 004's batch of 64, 000's buckets, the committed corpus, shuffled in one order (seed 0). There "
            "must be a memory in corpus order, and none once shuffled.",
        ),
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
