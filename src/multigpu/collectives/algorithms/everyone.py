"""Everyone to everyone: each process sends its whole tensor to all others and adds up what it
receives (document 002's peer to peer).

For N bytes and P processes: 1 latency term, the fewest possible; NP(P-1) in all, P/2 times the
others' 2N(P-1). Every process needs room for P tensors, and adds them up in the order of ranks, so
that all make the same bits.

With compression, elements travel as bf16 or fp16, N the bytes on the wire. Each process also rounds
its own, or processes would differ. For elements x_r with A = sum |x_r|, u the wire's unit roundoff
(2^-8 for bf16, 2^-11 for fp16), v that of the tensor's type and t half of the wire's least number,
a sum is off by at most

    u A + P t + g (1 + u) (A + P t),  g = (P-1) v / (1 - (P-1) v)

(Higham 2002, sections 2.2 and 4.2), provided that no |x_r| exceeds the wire's largest number
(65,504 for fp16): beyond, the sum is infinite. bf16 reaches as far as fp32.
"""

from multigpu.collectives.algorithm import Algorithm, Cost, Tensor, Transport


def add_up_all(tensor: Tensor, sent: Tensor, transport: Transport) -> None:
    """Send `sent` to all, and put the sum of what all sent, in ranks' order, into `tensor`."""
    peers = [rank for rank in range(transport.size) if rank != transport.rank]
    received = [sent.new_empty(sent.numel()) for _ in peers]
    transport.exchange([(peer, sent) for peer in peers], list(zip(peers, received, strict=True)))
    parts = [*received[: transport.rank], sent, *received[transport.rank :]]
    total = parts[0].to(tensor.dtype)
    for part in parts[1:]:
        total.add_(part)
    if total is not tensor:
        tensor.copy_(total)


def _cost(n: int, size: int) -> Cost:
    return Cost(1, n, n * (size - 1), 2 * n * (size - 1), n * size * (size - 1))


ALGORITHM = Algorithm(
    "everyone", lambda tensor, transport: add_up_all(tensor, tensor, transport), _cost
)
BF16 = Algorithm(
    "everyone_bf16",
    lambda tensor, transport: add_up_all(tensor, tensor.bfloat16(), transport),
    _cost,
    wire="bf16",
)
FP16 = Algorithm(
    "everyone_fp16",
    lambda tensor, transport: add_up_all(tensor, tensor.half(), transport),
    _cost,
    wire="fp16",
)
