"""Every byte that one process moves between its devices and the host passes here and is counted, by kind."""

from collections.abc import Sequence

import torch
from torch import Tensor

from multigpu.engines.torch.devices import Devices
from multigpu.engines.torch.wire import Copy, HostLink


class Wire(HostLink):
    """Counted movements between the host and the devices, and among these. Nothing here makes the host wait."""

    def __init__(self, devices: Devices) -> None:
        super().__init__()
        self.devices, self.replicas = devices, len(devices.each)
        if devices.cuda:
            # copies have streams of their own, one out of and one into each device: on the devices' main streams a copy
            # would wait for all copies asked for before it, from or to either of its ends
            self.outward = [torch.cuda.Stream(device.torch) for device in devices.each]
            self.inward = [torch.cuda.Stream(device.torch) for device in devices.each]

    def copy_all(self, *batches: Sequence[Copy]) -> None:
        """Plain peer copies, all at once; each end's main stream sees them in its order. Empty tensors are left out."""
        copies = [copy for batch in batches for copy in batch if copy.source.numel()]
        self.counts["device_to_device"] += sum(copy.source.nbytes for copy in copies)
        if not self.devices.cuda:
            for copy in copies:
                copy.target.copy_(copy.source)
            return
        # round by round, in each of which every device sends to another one: none waits for a third
        copies.sort(key=lambda copy: (copy.end - copy.start) % self.replicas)
        main = [torch.cuda.current_stream(device.torch) for device in self.devices.each]
        here = torch.cuda.current_device()
        senders, receivers = {copy.start for copy in copies}, {copy.end for copy in copies}
        used = [(main[rank], self.outward[rank]) for rank in senders] + [(main[rank], self.inward[rank]) for rank in receivers]
        for stream, side in used:
            side.wait_stream(stream)
        try:
            for copy in copies:
                # the library's copy runs on the source's current stream and orders it with the target's, both ways
                torch.cuda.set_stream(self.inward[copy.end])
                torch.cuda.set_stream(self.outward[copy.start])
                copy.target.copy_(copy.source, non_blocking=True)
        finally:
            for stream in main:
                torch.cuda.set_stream(stream)
            torch.cuda.set_device(here)
        # before anything may free or overwrite either end: both were allocated on the main streams
        for stream, side in used:
            stream.wait_stream(side)

    def all_reduce(self, tensors: Sequence[Tensor]) -> None:
        """Sum over replicas, in place, one tensor a device: NCCL's all-reduce on GPUs, plain additions on CPUs."""
        if self.replicas == 1:
            return
        self.counts["all_reduce"] += sum(tensor.nbytes for tensor in tensors)
        if self.devices.cuda:
            # a group of one process: the library makes its communicators at the first call and keeps them
            torch.cuda.nccl.all_reduce(tensors)
            return
        total = tensors[0]
        for tensor in tensors[1:]:
            total += tensor
        for tensor in tensors[1:]:
            tensor.copy_(total)
