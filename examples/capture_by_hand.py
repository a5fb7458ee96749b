"""A whole training step as one CUDA graph, in plain PyTorch, with why each line is there.

torchrun --nproc-per-node 2 examples/capture_by_hand.py [ddp|fsdp2]

`benchmarks/capture_pitfalls.py` leaves out one line after the other and says what comes of it.
"""

import os
import sys

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl", device_id=device)
# A capture is of one stream that is not the default one. What is made lazily (DDP's gradient
# accumulators, NCCL's first call) remembers the stream it was made in, so all of it goes there.
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(512, 512), nn.GELU()) for _ in range(8)]
    model: nn.Module = nn.Sequential(*layers).to(device)
    if sys.argv[1:] == ["fsdp2"]:
        for layer in model:
            fully_shard(layer)
        fully_shard(model)
    else:
        model = DistributedDataParallel(model, gradient_as_bucket_view=True)
    # capturable: the count of steps, and all that is computed from it, stays on the device.
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True, capturable=True)
    # The graph reads these addresses for ever: new batches are copied into them.
    x, target = torch.zeros(32, 512, device=device), torch.zeros(32, 512, device=device)

    def step() -> Tensor:
        optimizer.zero_grad(set_to_none=False)  # the graph adds to these gradients: keep them
        loss = nn.functional.mse_loss(model(x), target)
        loss.backward()
        optimizer.step()
        return loss.detach()  # nothing here may ask for a value: no .item(), no print(loss)

    def feed(number: int) -> None:
        generator = torch.Generator(device).manual_seed(
            number * dist.get_world_size() + dist.get_rank()
        )
        x.normal_(generator=generator)
        target.copy_(x.sin())

    # 11 steps and more before the capture: DDP measures its first 10 by events and deals its
    # buckets anew, the optimizer makes its states, cuBLAS its workspaces. They train, too.
    for number in range(12):
        feed(number)
        step()
    torch.cuda.synchronize()  # what still runs would become an event from outside the graph
    graph = torch.cuda.CUDAGraph()
    # thread_local: NCCL's watchdog, another thread, asks the driver meanwhile.
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        loss = step()  # recorded, not run: no update happens here
    for number in range(12, 200):
        feed(number)  # same shapes and types, or the graph would read the wrong memory
        graph.replay()
    torch.cuda.synchronize()
if dist.get_rank() == 0:
    print(f"after 200 steps: {loss.item():.5f}")
graph.reset()  # before the communicator whose kernels it holds
dist.destroy_process_group()
