"""Where a traced step goes: its six parts, and any parts of a step as bars of one length, for pages
and notebooks.
"""

from collections.abc import Mapping, Sequence
from html import escape
from statistics import fmean
from typing import NamedTuple

from multigpu.analysis.estimate import Estimate
from multigpu.analysis.explain_text import PART_NAMES
from multigpu.analysis.show import Shown
from multigpu.records.trace import SIX_PARTS, Part, TraceSummary

SIX_NAMES: dict[Part, str] = {
    "input": PART_NAMES["input"],
    "launch": "launching kernels",
    "computing": "computing",
    "waiting": "waiting for other ranks",
    "merging": "gradients and variables travel and are reduced",
    "rest": "rest: the host does something else",
}
COLOURS = ("#e69f00", "#56b4e9", "#009e73", "#d55e00", "#0072b2", "#999999", "#cc79a7", "#f0e442")


class Traced(NamedTuple):
    """A placement's step by its trace. parts: seconds of each; they add up to the step as given.
    last: the rank that the others wait for in every step (None: in none so). operations: of a step.
    layers: its name and class -> its share of a traced step, the dearest first; owns: of the
    model's parameters.
    """

    parts: dict[Part, float]
    last: int | None
    operations: float
    layers: dict[str, float]
    owns: dict[str, float]

    @property
    def largest(self) -> Part:
        """The part that takes most."""
        return max(self.parts, key=lambda part: self.parts[part])


def traced_step(
    every: Sequence[TraceSummary], step_s: float, input_s: float | None = None
) -> Traced | None:
    """Return the six parts of a step of `step_s` seconds, of the rank that waits most for the
    others: what it takes is what the step takes. None: no trace tells them.

    input_s: what a step waits for its batch, where that was measured apart from any profiler; the
    traces tell the others' shares of the rest.
    """
    replicas = [replica for trace in every for replica in trace.replicas if replica.steps]
    told = [[step.parts for step in replica.steps if step.parts] for replica in replicas]
    if not replicas or not all(told):
        return None
    waits = [fmean(parts["waiting"] for parts in own) for own in told]
    own = told[waits.index(max(waits))]
    lasts = {
        min(zip(together, replicas, strict=True), key=lambda one: one[0]["waiting"])[1].rank
        for together in zip(*told, strict=True)
    }
    means = {part: fmean(parts[part] for parts in own) for part in SIX_PARTS}
    whole = sum(means.values())
    if input_s is None:
        parts = {part: step_s * value / whole for part, value in means.items()}
    else:
        left = (step_s - input_s) / max(1e-12, whole - means["input"])
        parts = {part: left * value for part, value in means.items()} | {"input": input_s}
    steps = sum(len(replica.steps) for replica in replicas)
    layers = {
        f"{layer.name or 'its own forward'} ({layer.kind})": layer
        for trace in every
        for layer in trace.layers
    }
    return Traced(
        parts={part: parts[part] for part in SIX_PARTS},
        last=lasts.pop() if len(lasts) == 1 and len(replicas) > 1 else None,
        operations=sum(step.kernels for replica in replicas for step in replica.steps) / steps,
        layers={name: layer.total_s / steps / whole for name, layer in layers.items()},
        owns={name: layer.share for name, layer in layers.items()},
    )


def shown_steps(steps: Mapping[str, Mapping[Part, float]]) -> Shown:
    """Draw steps by their six parts, in seconds, as bars of one length each (HTML that needs no
    style sheet); nothing where there is none.
    """
    return shown_parts(
        {
            name: {SIX_NAMES[part]: parts[part] for part in SIX_PARTS if part in parts}
            for name, parts in steps.items()
        }
    )


def shown_parts(steps: Mapping[str, Mapping[str, float]]) -> Shown:
    """Draw steps, each by its parts in seconds, as bars of one length; as text a line a part."""
    names = list(dict.fromkeys(part for parts in steps.values() for part in parts))
    colours = dict(zip(names, COLOURS, strict=False))
    html, lines = [], []
    for name, parts in steps.items():
        whole = sum(parts.values())
        pieces = "".join(
            f'<span style="flex:{seconds / whole:.4f} 0 0;background:{colours[part]}"'
            f' title="{escape(part)}: {Estimate(seconds):ms}"></span>'
            for part, seconds in parts.items()
            if seconds > 0
        )
        said = f"{name}: {Estimate(whole):ms} a step"
        described = ", ".join(f"{part} {Estimate(value):ms}" for part, value in parts.items())
        html.append(
            f'<p style="margin:.5rem 0 .2rem">{escape(said)}</p><div role="img"'
            f' aria-label="{escape(described)}" style="display:flex;height:1.5rem;'
            f'max-width:60rem">{pieces}</div>'
        )
        lines += [said] + [
            f"  {Estimate(seconds):ms} ({Estimate(seconds / whole):percent}) {part}"
            for part, seconds in parts.items()
            if seconds > 0
        ]
    key = "".join(
        '<span style="display:inline-block;margin-right:1rem"><i style="display:inline-block;'
        f'width:.8em;height:.8em;background:{colour}"></i> {escape(name)}</span> '
        for name, colour in colours.items()
    )
    return Shown(f"{''.join(html)}<p>{key}</p>" if html else "", "\n".join(lines))
