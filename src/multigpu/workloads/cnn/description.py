"""The image models, framework-free."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from multigpu.workloads.base import Model, Optimizer
from multigpu.workloads.cnn import resnet
from multigpu.workloads.cnn.layers import Network, trace


@dataclass(frozen=True)
class CnnConfig:
    """One network and its images: square, `image_size` pixels a side, of `channels` colours; `network` ends in logits."""

    image_size: int
    classes: int
    network: Network
    channels: int = 3

    @property
    def image_shape(self) -> tuple[int, int, int]:
        """(channels, height, width)."""
        return self.channels, self.image_size, self.image_size


def describe(name: str, config: CnnConfig, optimizer: Optimizer) -> Model:
    """The description of one image model.

    Raises:
        ValueError: layers do not fit one another, or the network does not end in one logit a class.
    """
    whole = trace(config.network, config.image_shape)
    if whole.output != (config.classes,):
        raise ValueError(f"{name} ends in shape {whole.output}: it must end in {config.classes} logits")
    return Model(
        name=name,
        workload="cnn",
        unit="images",
        variables=whole.variables,
        optimizer=optimizer,
        forward_flops_per_unit=float(whole.flops),
        config=config,
    )


def momentum_sgd(rate: float) -> Optimizer:
    """tf_cnn_benchmarks' momentum rule: 0.9, and L2 of 4e-5 on every variable (its later versions spare batch norm's)."""
    return Optimizer("sgd", rate=rate, momentum=0.9, weight_decay=4e-5)


# Rates are constants here, since steps are timed: tf_cnn_benchmarks' own after warm-up and before the first decay, for the
# documents' batch on one GPU. ResNet-50: 0.128 for 256 images, scaled to its batch of 64; CIFAR: 0.1.
RESNET50 = momentum_sgd(0.128 * 64 / 256)
CIFAR = momentum_sgd(0.1)

MODELS: Mapping[str, Model] = MappingProxyType(
    {
        model.name: model
        for model in (
            # document 001's ResNet-50, 25,559,081 parameters: the stride in the first 1x1 (v1) or the 3x3 (v1.5)
            describe("resnet50_v1", CnnConfig(224, 1001, resnet.imagenet((3, 4, 6, 3), "1x1")), RESNET50),
            describe("resnet50_v1.5", CnnConfig(224, 1001, resnet.imagenet((3, 4, 6, 3), "3x3")), RESNET50),
            # document 001's ResNet-20 for CIFAR-10 with one spare class, 269,787 parameters
            describe("resnet20", CnnConfig(32, 11, resnet.cifar(3)), CIFAR),
            # the same topology for CPUs, and one block of every kind for tests
            describe("resnet_small", CnnConfig(16, 11, resnet.cifar(1, width=8)), CIFAR),
            describe("resnet_tiny", CnnConfig(8, 11, resnet.tiny()), CIFAR),
        )
    }
)
