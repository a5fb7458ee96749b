"""What each section of a stack computes, in PyTorch."""

from collections.abc import Callable

from torch import Tensor, nn

from multigpu.workloads.stacks.torch import Stack

Values = dict[str, Tensor]


def section_functions(module: nn.Module) -> dict[str, Callable[[Values], Values]]:
    """Section -> what it computes, from arrays of the batch and tensors that earlier sections gave to what it gives ("loss": the last)."""
    assert isinstance(module, Stack)
    stack, kind = module, module.config.kind

    def layer(index: int) -> Callable[[Values], Values]:
        def run(values: Values) -> Values:
            x = values[f"{kind}_{index - 1}"] if index else stack.enter(values["samples"])
            return {f"{kind}_{index}": stack.layer(index, x)}

        return run

    found = {f"{kind}_{index}": layer(index) for index in range(stack.config.layers)}
    found["head"] = lambda values: {"loss": stack.loss(values[f"{kind}_{stack.config.layers - 1}"], values["labels"])}
    return found
