"""tf_cnn_benchmarks' Inception networks: GoogLeNet (arXiv:1409.4842), v3 (1512.00567), v4
(1602.07261), without auxiliary heads.
"""

from collections.abc import Callable
from typing import Literal

from multigpu.workloads.cnn import layers as L
from multigpu.workloads.cnn import network as net
from multigpu.workloads.cnn.plain import conv_relu, thin

NORM = L.BatchNorm(decay=0.999, epsilon=0.001, scale=False)
"""What tf_cnn_benchmarks takes where a model does not say."""


def _conv_norm_relu(shrink: int) -> Callable[..., net.Network]:
    def conv(
        filters: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pads: net.Pads | Literal["same"] = "same",
    ) -> net.Network:
        return (L.Convolution(kernel, stride, pads, thin(filters, shrink)), NORM, L.Relu())

    return conv


def googlenet(classes: int = 1001, shrink: int = 1) -> net.Network:
    """Nine blocks of four columns, for 224 pixels."""

    def conv(filters: int, kernel: int, stride: int = 1) -> net.Network:
        return conv_relu(thin(filters, shrink), kernel, stride)

    def block(k: int, l: int, m: int, n: int, p: int, q: int) -> L.Concat:  # noqa: E741
        pooled = (L.MaxPool(3, 1, "same"), *conv(q, 1))
        return L.Concat((conv(k, 1), conv(l, 1) + conv(m, 3), conv(n, 1) + conv(p, 5), pooled))

    pool = L.MaxPool(3, 2, "same")
    return (
        *conv(64, 7, 2),
        pool,
        *conv(64, 1),
        *conv(192, 3),
        pool,
        block(64, 96, 128, 16, 32, 32),
        block(128, 128, 192, 32, 96, 64),
        pool,
        block(192, 96, 208, 16, 48, 64),
        block(160, 112, 224, 24, 64, 64),
        block(128, 128, 256, 24, 64, 64),
        block(112, 144, 288, 32, 64, 64),
        block(256, 160, 320, 32, 128, 128),
        pool,
        block(256, 160, 320, 32, 128, 128),
        block(384, 192, 384, 48, 128, 128),
        L.GlobalAveragePool(),
        L.Dense(classes),
    )


def inception3(
    classes: int = 1001,
    shrink: int = 1,
    a_filters: tuple[int, ...] = (32, 64, 64),
    c_filters: tuple[int, ...] = (128, 160, 160, 192),
) -> net.Network:
    """For 299 pixels; 75 is the least. Blocks differ in filters behind pooling (`a_filters`) or in
    narrow columns (`c_filters`).
    """
    conv = _conv_norm_relu(shrink)
    average, valid = L.AveragePool(3, 1, "same"), net.NO_PADS

    def a(n: int) -> L.Concat:
        return L.Concat(
            (
                conv(64, 1),
                conv(48, 1) + conv(64, 5),
                conv(64, 1) + conv(96, 3) * 2,
                (average, *conv(n, 1)),
            )
        )

    def c(n: int) -> L.Concat:
        twice = conv(n, 1) + (
            conv(n, (7, 1)) + conv(n, (1, 7)) + conv(n, (7, 1)) + conv(192, (1, 7))
        )
        return L.Concat(
            (
                conv(192, 1),
                conv(n, 1) + conv(n, (1, 7)) + conv(192, (7, 1)),
                twice,
                (average, *conv(192, 1)),
            )
        )

    def e(pool: L.AveragePool | L.MaxPool) -> L.Concat:
        both = L.Concat((conv(384, (1, 3)), conv(384, (3, 1))))
        return L.Concat(
            (
                conv(320, 1),
                (*conv(384, 1), both),
                (*conv(448, 1), *conv(384, 3), both),
                (pool, *conv(192, 1)),
            )
        )

    b = L.Concat(
        (
            conv(384, 3, 2, valid),
            conv(64, 1) + conv(96, 3) + conv(96, 3, 2, valid),
            (L.MaxPool(3, 2),),
        )
    )
    seven = conv(192, 1) + conv(192, (1, 7)) + conv(192, (7, 1)) + conv(192, 3, 2, valid)
    d = L.Concat((conv(192, 1) + conv(320, 3, 2, valid), seven, (L.MaxPool(3, 2),)))
    return (
        *conv(32, 3, 2, valid),
        *conv(32, 3, 1, valid),
        *conv(64, 3),
        L.MaxPool(3, 2),
        *conv(80, 1),
        *conv(192, 3, 1, valid),
        L.MaxPool(3, 2),
        *(a(n) for n in a_filters),
        b,
        *(c(n) for n in c_filters),
        d,
        e(average),
        e(L.MaxPool(3, 1, "same")),
        L.GlobalAveragePool(),
        L.Dense(classes),
    )


def inception4(
    classes: int = 1001,
    shrink: int = 1,
    dropout: float = 0.2,
    blocks: tuple[int, int, int] = (4, 7, 3),
) -> net.Network:
    """For 299 pixels; 75 is the least. `blocks` of each kind, around the two reductions."""
    conv = _conv_norm_relu(shrink)
    average, valid = (L.AveragePool(3, 1, "same"),), net.NO_PADS
    halved = (L.MaxPool(3, 2),)

    stem_b = (
        conv(64, 1) + conv(96, 3, 1, valid),
        conv(64, 1) + conv(64, (7, 1)) + conv(64, (1, 7)) + conv(96, 3, 1, valid),
    )
    a = L.Concat(
        (
            average + conv(96, 1),
            conv(96, 1),
            conv(64, 1) + conv(96, 3),
            conv(64, 1) + conv(96, 3) * 2,
        )
    )
    reduction_a = L.Concat(
        (halved, conv(384, 3, 2, valid), conv(192, 1) + conv(224, 3) + conv(256, 3, 2, valid))
    )
    b_twice = (
        conv(192, 1) + conv(192, (1, 7)) + conv(224, (7, 1)) + conv(224, (1, 7)) + conv(256, (7, 1))
    )
    b = L.Concat(
        (
            average + conv(128, 1),
            conv(384, 1),
            conv(192, 1) + conv(224, (1, 7)) + conv(256, (7, 1)),
            b_twice,
        )
    )
    seven = conv(256, 1) + conv(256, (1, 7)) + conv(320, (7, 1)) + conv(320, 3, 2, valid)
    reduction_b = L.Concat((halved, conv(192, 1) + conv(192, 3, 2, valid), seven))
    wide, high = conv(256, (1, 3)), conv(256, (3, 1))
    longer = conv(384, 1) + conv(448, (1, 3)) + conv(512, (3, 1))
    c = L.Concat(
        (
            average + conv(256, 1),
            conv(256, 1),
            (*conv(384, 1), L.Concat((wide, high))),
            (*longer, L.Concat((high, wide))),
        )
    )
    return (
        *conv(32, 3, 2, valid),
        *conv(32, 3, 1, valid),
        *conv(64, 3),
        L.Concat((halved, conv(96, 3, 2, valid))),
        L.Concat(stem_b),
        L.Concat((conv(192, 3, 2, valid), halved)),
        *(a,) * blocks[0],
        reduction_a,
        *(b,) * blocks[1],
        reduction_b,
        *(c,) * blocks[2],
        L.GlobalAveragePool(),
        *((L.Dropout(dropout),) if dropout else ()),
        L.Dense(classes),
    )
