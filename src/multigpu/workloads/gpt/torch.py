"""The transformers in PyTorch."""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from multigpu.placements.partition import bounds
from multigpu.spec.model import Model
from multigpu.workloads.gpt.chunked_loss import chunked_cross_entropy
from multigpu.workloads.gpt.description import GptConfig
from multigpu.workloads.stacks.torch import Parts


def build(model: Model, cross_entropy: str | None = None) -> nn.Module:
    """Build the module of a transformer, its parameters uninitialised. cross_entropy: "library"
    (also None), or "fused", which never holds all logits.
    """
    return Gpt(model, chunked_cross_entropy if cross_entropy == "fused" else library_loss)


def build_part(model: Model, parts: Parts) -> nn.Module:
    """Build one device's part of every block, of the table and of the loss, as Megatron-LM cuts
    them: heads and wide units by outputs, then by inputs; the vocabulary at both ends.
    """
    return Gpt(model, parts=parts)


def library_loss(x: Tensor, table: Tensor, targets: Tensor) -> Tensor:
    """Return summed cross entropies of x (N, C) @ table (V, C).T over targets (N,) int64."""
    logits = F.linear(x, table)
    if logits.dtype in (torch.bfloat16, torch.float16):
        logits = logits.float()
    return F.cross_entropy(logits, targets, reduction="sum")


class Block(nn.Module):
    """Attention and two dense layers, each of a normalised copy and added to what came, (B, T, C).
    The heads are as many as the rows of `qkv` hold.
    """

    def __init__(self, config: GptConfig, parts: Parts) -> None:
        super().__init__()
        n, own = config.width, config.width // parts.count
        self.head_width, self.share = n // config.heads, config.dropout
        self.parts = parts
        self.norm_1 = nn.LayerNorm(n)
        self.qkv = nn.Linear(n, 3 * own)
        self.out = nn.Linear(own, n)
        self.norm_2 = nn.LayerNorm(n)
        self.up = nn.Linear(n, 4 * own)
        self.down = nn.Linear(4 * own, n)

    def forward(self, x: Tensor) -> Tensor:
        dropout = self.share if self.training else 0.0
        read = self.attend(self.parts.spread(self.norm_1(x)))
        x = x + F.dropout(self.joined(self.out, read), dropout)
        wide = F.gelu(self.up(self.parts.spread(self.norm_2(x))), approximate="tanh")
        return x + F.dropout(self.joined(self.down, wide), dropout)

    def joined(self, layer: nn.Linear, x: Tensor) -> Tensor:
        """A layer that is cut by its inputs: the sum of all parts' products, and its bias once."""
        if self.parts.count == 1:
            return layer(x)
        product = self.parts.total(F.linear(x, layer.weight))
        return product + layer.bias.to(product.dtype)

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
        self,
        model: Model,
        loss: Callable[[Tensor, Tensor, Tensor], Tensor] = library_loss,
        parts: Parts | None = None,
    ) -> None:
        super().__init__()
        config: GptConfig = model.config
        self.config, self.loss = config, loss
        self.parts = parts or Parts()
        self.entries = bounds(config.vocabulary, self.parts.count, self.parts.index)
        begin, end = self.entries
        self.table = nn.Parameter(torch.empty(end - begin, config.width))
        self.positions = nn.Parameter(torch.empty(config.context, config.width))
        self.blocks = nn.ModuleList([Block(config, self.parts) for _ in range(config.layers)])
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
        x = self.looked_up(tokens) + self.positions[: tokens.shape[1]]
        return F.dropout(x, self.config.dropout if self.training else 0.0)

    def looked_up(self, tokens: Tensor) -> Tensor:
        """Rows of the tokens, (B, T) -> (B, T, C), each from the part that has it."""
        if self.parts.count == 1:
            return F.embedding(tokens, self.table)
        begin, end = self.entries
        here = (tokens >= begin) & (tokens < end)
        rows = F.embedding((tokens - begin).clamp(0, end - begin - 1), self.table)
        return self.parts.total(rows * here.unsqueeze(-1).to(rows.dtype))

    def head(self, x: Tensor, table: Tensor, targets: Tensor) -> Tensor:
        """Return the sum of the loss of x (B, T, C) over targets (B, T)."""
        x = self.norm(x).flatten(0, 1)
        if self.parts.count == 1:
            return self.loss(x, table, targets.flatten())
        logits = F.linear(self.parts.spread(x), table)
        return self.parts.cross_entropy(logits, targets.flatten(), self.config.vocabulary)

    def compile_parts(self) -> None:
        """Compile every block by itself, so that its gradients are ready early, and the loss."""
        for block in self.blocks:
            block.compile(dynamic=False)
        if self.loss is library_loss:
            self.loss = torch.compile(self.loss, dynamic=False)


Values = dict[str, Tensor]


def section_functions(module: nn.Module) -> dict[str, Callable[[Values], Values]]:
    """Section -> its function, from arrays and earlier tensors to what it gives."""
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
