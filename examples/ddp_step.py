"""The placement `ddp` in one file: a whole model on every rank, gradients reduced in buckets while
backward still runs. What DistributedDataParallel does, without what it does besides.

torchrun --nproc-per-node 2 examples/ddp_step.py
"""

import os

import torch
import torch.distributed as dist
from torch import Tensor, nn


def simple_step(model: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor) -> Tensor:
    """The same step without overlap: backward, then one all-reduce for each parameter."""
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    for parameter in (each for each in model.parameters() if each.requires_grad):
        dist.all_reduce(parameter.grad)  # every rank now holds the sum
        parameter.grad /= dist.get_world_size()  # of equal shards: the mean over the global batch
    optimizer.step()
    return loss.detach()


class Bucket:
    """Parameters whose gradients travel in one message of at least `FULL` bytes."""

    FULL = 1 << 20

    def __init__(self) -> None:
        self.parameters: list[nn.Parameter] = []
        self.missing = 0  # gradients of this step that backward has not made yet
        self.message: Tensor | None = None
        self.work: dist.Work | None = None

    @property
    def bytes(self) -> int:
        return sum(each.numel() * each.element_size() for each in self.parameters)

    def send(self) -> None:
        """Pack the gradients and start their all-reduce; backward goes on beside it."""
        self.message = torch.cat([each.grad.flatten() for each in self.parameters])
        self.work = dist.all_reduce(self.message, async_op=True)

    def receive(self) -> None:
        """Wait for the sums and put their means where the optimizer looks for gradients."""
        self.work.wait()
        self.message /= dist.get_world_size()
        sizes = [each.numel() for each in self.parameters]
        for parameter, mean in zip(self.parameters, self.message.split(sizes), strict=True):
            parameter.grad.copy_(mean.view_as(parameter))


class DataParallel:
    """Train replicas of a module, one a rank, on a shard of the global batch each."""

    def __init__(self, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.model, self.optimizer = model, optimizer
        for tensor in model.state_dict().values():
            dist.broadcast(tensor, src=0)  # all begin with rank 0's model
        self.buckets = [Bucket()]
        # Backward makes the last layer's gradients first, so buckets are dealt from the end.
        for parameter in reversed([each for each in model.parameters() if each.requires_grad]):
            if self.buckets[-1].bytes >= Bucket.FULL:
                self.buckets.append(Bucket())
            bucket = self.buckets[-1]
            bucket.parameters.append(parameter)
            parameter.register_post_accumulate_grad_hook(lambda _, own=bucket: self._arrived(own))

    def _arrived(self, bucket: Bucket) -> None:
        bucket.missing -= 1
        if bucket.missing == 0:
            bucket.send()

    def step(self, batch: Tensor) -> Tensor:
        """One step on this rank's shard; returns its loss."""
        for bucket in self.buckets:
            bucket.missing = len(bucket.parameters)
        self.optimizer.zero_grad()
        loss = self.model(batch).square().mean()
        loss.backward()  # its hooks send every bucket as soon as it is full
        for bucket in self.buckets:
            bucket.receive()
        self.optimizer.step()  # the same everywhere: replicas stay equal
        return loss.detach()


def main() -> None:
    on_gpu = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if on_gpu else torch.device("cpu")
    dist.init_process_group("nccl" if on_gpu else "gloo")
    torch.manual_seed(dist.get_rank())  # different models and shards: the broadcast must mend it
    layers = [nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(8)]
    model = nn.Sequential(*layers).to(device)
    trainer = DataParallel(model, torch.optim.AdamW(model.parameters(), 1e-3))
    for _ in range(20):
        loss = trainer.step(torch.randn(32, 512, device=device))
    dist.all_reduce(loss, op=dist.ReduceOp.AVG if on_gpu else dist.ReduceOp.SUM)
    if dist.get_rank() == 0:
        print(f"after 20 steps: {loss.item() / (1 if on_gpu else dist.get_world_size()):.5f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
