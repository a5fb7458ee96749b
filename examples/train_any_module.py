"""Train any module on the GPUs that torchrun starts it on: an epoch, an evaluation, a file, again.

torchrun --nproc-per-node 2 examples/train_any_module.py epoch.pt
torchrun --nproc-per-node 1 examples/train_any_module.py epoch.pt  # goes on where two left off
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from multigpu import AdamW, wrap

generator = torch.Generator().manual_seed(0)
inputs = torch.randn(512, 16, generator=generator)
data = TensorDataset(inputs, inputs[:, :4].square().sum(1, keepdim=True))
model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))

trainer = wrap(model, nn.MSELoss(), AdamW(1e-2), placement="fsdp2", execution="captured", seed=1)
path = Path(sys.argv[1])
if path.exists():
    trainer.load(path)
sampler = DistributedSampler(data, trainer.group.size, trainer.group.rank, seed=trainer.steps)
for batch in DataLoader(data, batch_size=32 // trainer.group.size, sampler=sampler):
    loss = trainer.step(batch)
print(f"step {trainer.steps}: all samples' loss {trainer.evaluate(data.tensors):.4f}")
trainer.save(path)
