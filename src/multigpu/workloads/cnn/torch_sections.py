"""What each section of an image model computes, in PyTorch."""

from collections.abc import Callable

from torch import Tensor, nn

from multigpu.workloads.cnn.torch import Cnn

Values = dict[str, Tensor]


def section_functions(module: nn.Module) -> dict[str, Callable[[Values], Values]]:
    """Section -> what it computes, from arrays of the batch and tensors that earlier sections gave to what it gives ("loss": the last)."""
    assert isinstance(module, Cnn)
    stretches: list[list[tuple[str, nn.Module]]] = []
    for name, layer in module.named_children():
        if stretches and isinstance(layer, nn.ReLU):
            stretches[-1].append((name, layer))
        else:
            stretches.append([(name, layer)])
    found: dict[str, Callable[[Values], Values]] = {}
    before = ""
    for index, stretch in enumerate(stretches):
        found[stretch[0][0]] = _section(module, before, stretch, index == len(stretches) - 1)
        before = stretch[0][0]
    return found


def _section(module: Cnn, before: str, stretch: list[tuple[str, nn.Module]], last: bool) -> Callable[[Values], Values]:
    def run(values: Values) -> Values:
        x = values[before] if before else values["images"].contiguous(memory_format=module.memory_format)
        for _, layer in stretch:
            x = layer(x)
        if not last:
            return {stretch[0][0]: x}
        return {"loss": module.loss_of(x, values["labels"])}

    return run
