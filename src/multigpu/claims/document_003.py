"""Claims of document 003: one recommender with two towers on two GPUs."""

from __future__ import annotations

from multigpu.claims.core import Claim, Contrast, Predicate, Term, where
from multigpu.claims.names import ALTERNATING, DEEPCONN, EAGER_OR_CAPTURED, ONE_GPU, OVERLAPPED, TOWERS, term
from multigpu.claims.traces import TracePredicate

CLAIMS = (
    Claim(
        number="C35",
        sentence="One tower a GPU is slower than both on one GPU, and changing devices at every operation is slower still.",
        documents=("003",),
        figure="20.455 / 22.500 / 23.021 s an epoch (1.10x, 1.02x)",
        predicate=Predicate(
            where=where(model=DEEPCONN, batch_size=32),
            contrasts=(
                Contrast(
                    label="step time of one tower a GPU over one GPU",
                    over=(term(2, placement=TOWERS),),
                    under=(term(1, placement=ONE_GPU),),
                    quantity="step_time_s",
                ),
                Contrast(
                    label="step time of alternating devices over one tower a GPU",
                    over=(term(2, placement=ALTERNATING),),
                    under=(term(2, placement=TOWERS),),
                    quantity="step_time_s",
                    bound=1.01,
                ),
            ),
            scope="Batch 32 as there: by 5% for the towers, by 1% for the alternating devices (the document's difference is 2%).",
        ),
    ),
    Claim(
        number="C36",
        sentence="What slows the two GPUs down is peer-to-peer copies.",
        documents=("003",),
        figure="copies take 20.08% (towers) and 24.53% (alternating) of GPU time",
        predicate=TracePredicate(
            where=where(model=DEEPCONN, batch_size=32),
            contrasts=(
                Contrast(
                    label="step of one tower a GPU over one GPU",
                    over=(term(2, placement=TOWERS),),
                    under=(term(1, placement=ONE_GPU),),
                    quantity="timed_step_s",
                ),
                Contrast(
                    label="step of one tower a GPU without its copies over one GPU",
                    over=(term(2, placement=TOWERS),),
                    under=(term(1, placement=ONE_GPU),),
                    quantity="step_without_copies_s",
                    direction="below",
                ),
            ),
            scope="The towers are slower by 5%, and would be at most 5% slower if every copy that nothing hides took no time.",
        ),
    ),
    Claim(
        number="C37",
        sentence="A model that fits one GPU trains fastest on one.",
        documents=("003",),
        figure='"most models that fit in single-GPU memory": 20.455 against 22.500 s an epoch',
        predicate=Predicate(
            where=where(placement=OVERLAPPED, execution=EAGER_OR_CAPTURED),
            contrasts=(
                Contrast(
                    label="rate on N GPUs over one",
                    over=(Term(),),
                    under=(Term(devices=1),),
                    direction="below",
                    counts="each",
                    count_at_least=2,
                    across="most",
                    models_at_least=2,
                ),
            ),
            scope="Replicas with all-reduce: N GPUs give at most 5% more units a second in more than half of the settings.",
        ),
    ),
    Claim(
        number="C51",
        sentence="The kernel of sparse gradients takes the most time of a single GPU.",
        documents=("003",),
        figure="UnsortedSegment, 17.54% of GPU time",
        predicate=TracePredicate(
            where=where(model=DEEPCONN, batch_size=32, devices=1, placement=ONE_GPU),
            contrasts=(
                Contrast(
                    label="sparse gradients' kernels over the dearest other one",
                    over=(Term(),),
                    quantity="sparse_over_next",
                    bound=1.0,
                ),
            ),
            scope="Kernels that add up the gradients of the table's rows, together, against the kernel that takes most time beside them.",
        ),
    ),
)
