"""Find out why distributed training hangs, from what its ranks left behind: which rank never began
which collective, and where (`stuck_dumps` reads the files).
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from multigpu.analysis.words import joined, plural
from multigpu.user_model.stuck_dumps import Call, Dump

Kind = Literal["differs", "never_began", "no_dump", "all_began", "unmatched", "stands", "nothing"]
TRY_FIRST: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("try_first.yaml").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Stuck:
    """Why ranks wait. ranks: at fault; number, name: of the call in its group; what: in words."""

    kind: Kind
    ranks: tuple[int, ...]
    group: str
    number: int
    name: str
    what: str


def find_stuck(dumps: Sequence[Dump]) -> list[Stuck]:
    """Return what keeps the ranks of these dumps waiting, the surest cause first; one file or two
    (a record and a stack) a rank. ValueError: a rank's file is there twice.
    """
    records, stacks = dict[int, Dump](), dict[int, Dump]()
    for dump in dumps:
        known = stacks if dump.place else records
        if dump.rank in known:
            raise ValueError(f"two files are of rank {dump.rank}: give one file of a kind a rank")
        known[dump.rank] = dump
    differing = _differing(records)
    seen = {one.group for one in differing}
    behind = [one for one in _behind(records, stacks) if one.group not in seen]
    found = [*differing, *behind, *_unmatched(records)]
    left = (
        f"What {_ranks(sorted({*records, *stacks}))} left shows no call that one of them waits in"
    )
    return found or _standing(stacks) or [Stuck("nothing", (), "", 0, "", left)]


def _groups(records: dict[int, Dump]) -> dict[str, tuple[int, ...]]:
    """Return the ranks of each group that any rank used."""
    told: dict[str, tuple[int, ...]] = {}
    for dump in records.values():
        told |= {name: ranks for name, ranks in dump.members.items() if ranks}
    found = {}
    for group in sorted({name for dump in records.values() for name in dump.last}):
        users = {rank for rank, dump in records.items() if group in dump.last}
        whole = told.get(group) or (told.get("") if group == "0" else None)
        # gloo does not tell who is in a group, and nobody waits in a group of one
        known = whole or (records if len(users) == 1 else users)
        found[group] = tuple(sorted(users | set(known)))
    return found


def _numbered(dump: Dump, group: str) -> dict[int, Call]:
    return {call.number: call for call in dump.calls if call.group == group and not call.p2p}


def _of_group(group: str, groups: dict[str, tuple[int, ...]]) -> str:
    ranks = joined([str(rank) for rank in groups[group]])
    return f" of the group of ranks {ranks}" if len(groups) > 1 else ""


def _differing(records: dict[int, Dump]) -> list[Stuck]:
    """Return the first call of each group that is not the same on its ranks."""
    found, groups = [], _groups(records)
    for group, ranks in groups.items():
        calls = {rank: _numbered(records[rank], group) for rank in ranks if rank in records}
        for number in sorted(set().union(*calls.values())):
            here = {rank: own[number] for rank, own in calls.items() if number in own}
            model = max(
                here.values(), key=lambda call: sum(not call.differs(one) for one in here.values())
            )
            odd = tuple(rank for rank, call in here.items() if call.differs(model))
            if odd:
                each = "; ".join(f"rank {rank}: {call}" for rank, call in here.items())
                what = (
                    f"Call {number}{_of_group(group, groups)} is not the same on all ranks: {each}"
                )
                found.append(Stuck("differs", odd, group, number, here[odd[0]].name, what))
                break
    return found


def _behind(records: dict[int, Dump], stacks: dict[int, Dump]) -> list[Stuck]:
    """Return, of each group, the ranks that never began a call in which others wait."""
    found, groups = [], _groups(records)
    for group, ranks in groups.items():
        here = {rank: records[rank].last.get(group, 0) for rank in ranks if rank in records}
        calls = {rank: _numbered(records[rank], group) for rank in here}
        undone = {
            rank: [number for number, call in own.items() if not call.done]
            for rank, own in calls.items()
        }
        absent = tuple(rank for rank in ranks if rank not in here)
        # what failed counts as done: then the last call that anyone began tells how far they came
        waiting = {rank: min(numbers) for rank, numbers in undone.items() if numbers} or (
            {rank: max(own) for rank, own in calls.items() if own and absent}
        )
        if not waiting:
            continue
        first = min(waiting.values())
        call = next(calls[rank][first] for rank in waiting if waiting[rank] == first)
        named = f"call {first}{_of_group(group, groups)} ({call})"
        late = tuple(rank for rank, last in here.items() if last < first)
        others = [rank for rank in here if rank not in late]
        wait = f"{_ranks(others)} wait{'s' if len(others) == 1 else ''} in it"
        if late:
            said = "; ".join(_last_of(rank, calls[rank], here[rank], stacks) for rank in late)
            what = f"{_ranks(late).capitalize()} never began {named}, and {wait}; {said}"
            found.append(Stuck("never_began", late, group, first, call.name, what))
        elif absent:
            have = "has" if len(absent) == 1 else "have"
            what = (
                f"There is no dump of {_ranks(absent)}, which {have} ended, or never began {named},"
                f" the last of {_ranks(others)}"
            )
            found.append(Stuck("no_dump", absent, group, first, call.name, what))
        else:
            what = f"All ranks began {named}, and {_ranks(sorted(waiting))} never ended it"
            found.append(Stuck("all_began", (), group, first, call.name, what))
    return sorted(found, key=lambda one: one.kind == "all_began")


def _ranks(ranks: Iterable[Any]) -> str:
    """Return ranks in words: "rank 1", "ranks 0 and 2"."""
    every = [str(rank) for rank in ranks]
    return f"rank{'s' if len(every) > 1 else ''} {joined(every)}"


def _last_of(rank: int, calls: dict[int, Call], last: int, stacks: dict[int, Dump]) -> str:
    before = f"call {last} ({calls[last]})" if last in calls else "no call that is kept"
    stands = f" and now stands at {stacks[rank].place}" if rank in stacks else ""
    return f"the last that rank {rank} began was {before}{stands}"


def _unmatched(records: dict[int, Dump]) -> list[Stuck]:
    """Return messages that one rank waits for, or with, and the other never sent, or took."""
    sent: dict[tuple[int, int], list[Call]] = defaultdict(list)
    taken: dict[tuple[int, int], list[Call]] = defaultdict(list)
    for rank, dump in records.items():
        for call in dump.calls:
            if call.p2p and (pair := re.search(r"(\d+)\s*(->|<-)\s*(\d+)", call.name)):
                one, way, other = int(pair[1]), pair[2], int(pair[3])
                ends = (one, other) if way == "->" else (other, one)
                (sent if rank == ends[0] else taken)[ends].append(call)
    found = []
    for ends in sorted({*sent, *taken}):
        source, target = ends
        if source not in records or target not in records:
            continue
        more, less = taken[ends], sent[ends]
        at_fault, waits, verb = source, target, "send"
        if len(less) > len(more):
            more, less, at_fault, waits, verb = less, more, target, source, "receive"
        if len(more) > len(less) and not more[-1].done:
            number = len(less) + 1
            what = (
                f"Rank {at_fault} never began to {verb} message {number} from rank {source} to"
                f" rank {target}; rank {waits} waits for it: {more[number - 1]}"
            )
            found.append(Stuck("unmatched", (at_fault,), "", number, verb, what))
    return found


def _standing(stacks: dict[int, Dump]) -> list[Stuck]:
    """Return where ranks stand, of stacks alone."""
    outside = tuple(rank for rank, dump in stacks.items() if not dump.waits)
    if not stacks or (len({dump.place for dump in stacks.values()}) == 1 and not outside):
        return []
    each = "; ".join(
        f"rank {rank} {'waits for others' if dump.waits else 'is in no collective'}, {dump.place}"
        for rank, dump in sorted(stacks.items())
    )
    if outside and len(outside) < len(stacks):
        head = f"{_ranks(outside).capitalize()} never began the collective in which others wait"
        return [Stuck("stands", outside, "", 0, "", f"{head}: {each}")]
    if outside:
        return [Stuck("stands", (), "", 0, "", f"No rank waits for another: {each}")]
    return [Stuck("differs", (), "", 0, "", f"Ranks wait in different collectives: {each}")]


def told(found: Sequence[Stuck]) -> list[str]:
    """Return the causes in words, a line each, then what to try first."""
    lines = [f"{one.what}." for one in found]
    kinds = dict.fromkeys(one.kind for one in found)
    lines += [f"Try first: {TRY_FIRST['stuck'][kind]}." for kind in kinds]
    if len(found) > 1:
        lines.append(f"{plural(len(found), 'cause')}: mend the first one first.")
    return lines
