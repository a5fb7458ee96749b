"""The transformers in PyTorch."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.spec.model import Model
from multigpu.workloads.gpt.chunked_loss import chunked_cross_entropy
from multigpu.workloads.gpt.description import GptConfig


def build(model: Model, cross_entropy: str | None = None) -> nn.Module:
    """Build the module of a transformer, its parameters uninitialised. cross_entropy: "library"
    (also None), or "fused", which never holds all logits.
    """
    return Gpt(model, chunked_cross_entropy if cross_entropy == "fused" else library_loss)


def library_loss(x: Tensor, table: Tensor, targets: Tensor) -> Tensor:
    """Return the sum of cross entropies of x (N, C) @ table (V, C) transposed over targets (N,)
    int64, in float32 or better.
    """
    logits = F.linear(x, table)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return F.cross_entropy(logits, targets, reduction="sum")


class Block(nn.Module):
    """Attention and two dense layers, each of a normalised copy and added to what came, (B, T, C).
    The heads are as many as the rows of `qkv` hold.
    """

    def __init__(self, config: GptConfig) -> None:
        super().__init__()
        n = config.width
        self.head_width, self.share = n // config.heads, config.dropout
        self.norm_1 = nn.LayerNorm(n)
        self.qkv = nn.Linear(n, 3 * n)
        self.out = nn.Linear(n, n)
        self.norm_2 = nn.LayerNorm(n)
        self.up = nn.Linear(n, 4 * n)
        self.down = nn.Linear(4 * n, n)

    def forward(self, x: Tensor) -> Tensor:
        dropout = self.share if self.training else 0.0
        x = x + F.dropout(self.out(self.attend(self.norm_1(x))), dropout)
        wide = F.gelu(self.up(self.norm_2(x)), approximate="tanh")
        return x + F.dropout(self.down(wide), dropout)

    def attend(self, x: Tensor) -> Tensor:
        """Let each token read itself and those before it, heads side by side."""
        by_head = self.qkv(x).unflatten(2, (-1, 3, self.head_width))  # (B, T, H, 3, C / H)
        q, k, v = (part.transpose(1, 2) for part in by_head.unbind(3))  # (B, H, T, C / H)
        dropout = self.share if self.training else 0.0
        read = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)
        return read.transpose(1, 2).flatten(2)


class Gpt(nn.Module):
    """Sum of a shard's cross entropies over its tokens; parameters are the description's variables,
    name by name. `blocks` are the repeated parts; the table is one parameter, used at both ends.
    """

    def __init__(
        self, model: Model, loss: Callable[[Tensor, Tensor, Tensor], Tensor] = library_loss
    ) -> None:
        super().__init__()
        config: GptConfig = model.config
        self.config, self.loss = config, loss
        self.table = nn.Parameter(torch.empty(config.vocabulary, config.width))
        self.positions = nn.Parameter(torch.empty(config.context, config.width))
        self.blocks = nn.ModuleList([Block(config) for _ in range(config.layers)])
        self.norm = nn.LayerNorm(config.width)

    def lookups(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        return {}

    def forward(self, batch: dict[str, Tensor], rows: dict[str, Tensor] | None = None) -> Tensor:
        """Return the loss of tokens and targets, (B, T) int64 each; rows are ignored."""
        x = self.embed(batch["tokens"])
        for block in self.blocks:
            x = block(x)
        return self.head(x, self.table, batch["targets"])

    def embed(self, tokens: Tensor) -> Tensor:
        """Look up the tokens' and their positions' rows, (B, T) -> (B, T, C)."""
        x = F.embedding(tokens, self.table) + self.positions[: tokens.shape[1]]
        return F.dropout(x, self.config.dropout if self.training else 0.0)

    def head(self, x: Tensor, table: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the loss of x (B, T, C) over targets (B, T)."""
        return self.loss(self.norm(x).flatten(0, 1), table, targets.flatten())

    def compile_parts(self) -> None:
        """Compile every block by itself, so that its gradients are ready before the next one's
        backward, and the library's loss.
        """
        for block in self.blocks:
            block.compile(dynamic=False)
        if self.loss is library_loss:
            self.loss = torch.compile(self.loss, dynamic=False)


Values = dict[str, Tensor]


def section_functions(module: nn.Module) -> dict[str, Callable[[Values], Values]]:
    """Return what each section computes, from arrays of the batch and tensors that earlier ones
    gave to what it gives ("loss": the last).
    """
    assert isinstance(module, Gpt)
    last = len(module.blocks) - 1

    def embedding(values: Values) -> Values:
        return {
            "embedded": module.embed(values["tokens"]),
            "shared_table": module.table.view_as(module.table),
        }

    def block(index: int, values: Values) -> Values:
        x = values[f"blocks.{index - 1}"] if index else values["embedded"]
        return {f"blocks.{index}": module.blocks[index](x)}

    def head(values: Values) -> Values:
        x, table = values[f"blocks.{last}"], values["shared_table"]
        return {"loss": module.head(x, table, values["targets"])}

    found: dict[str, Callable[[Values], Values]] = {
        f"blocks.{index}": partial(block, index) for index in range(last + 1)
    }
    return {"embedding": embedding} | found | {"head": head}
