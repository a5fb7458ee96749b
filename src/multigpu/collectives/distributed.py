"""Messages through torch.distributed: gloo between CPU processes, NCCL between GPUs."""

import time

import torch.distributed as dist

from multigpu.collectives.algorithm import Messages, Transport


def distributed_transport(delay_s: float = 0.0) -> Transport:
    """This process's end of the default group, which must exist.

    All messages of an exchange are posted as one batch: NCCL then runs them as one kernel, in which they cannot block each other.
    With NCCL every process of the group must have taken part in one collective before (the library's rule for batches).

    Args:
        delay_s: slept before every exchange, in which a distant host's latency can be stood in for.
    """

    def carry(sends: Messages, receives: Messages) -> None:
        if delay_s:
            time.sleep(delay_s)
        # gloo tells the peer that it may send over the same connection: after a send begun first it would wait until that is over
        operations = [dist.P2POp(dist.irecv, tensor, peer) for peer, tensor in receives]
        operations += [dist.P2POp(dist.isend, tensor, peer) for peer, tensor in sends]
        for work in dist.batch_isend_irecv(operations):
            work.wait()

    return Transport(dist.get_rank(), dist.get_world_size(), carry)
