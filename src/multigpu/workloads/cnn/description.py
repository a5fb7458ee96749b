"""The image models, framework-free."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from typing import Any

from multigpu.lazy import LazyMapping
from multigpu.spec.model import Model, Optimizer
from multigpu.spec.stage_graph import Stage
from multigpu.workloads.cnn import densenet, family, inception, plain, resnet
from multigpu.workloads.cnn.layers import Convolution, Dense, Relu
from multigpu.workloads.cnn.network import Network, Shape, steps, trace

Named = tuple[str, Callable[[], Model]]
"""A model's name, and what makes its description."""


@dataclass(frozen=True)
class CnnConfig:
    """Square images of `channels` colours, and a network. default_batch: tf_cnn_benchmarks'."""

    image_size: int
    classes: int
    network: Network
    channels: int = 3
    default_batch: int = 32

    @property
    def image_shape(self) -> tuple[int, int, int]:
        return self.channels, self.image_size, self.image_size

    @property
    def foldable(self) -> bool:
        """Whether the first convolution's stride divides the image, so that it can be folded."""
        first = self.network[0]
        return (
            isinstance(first, Convolution)
            and first.stride > 1
            and self.image_size % first.stride == 0
        )


def unneeded_passes(config: CnnConfig) -> int:
    """Return the passes of `Trace.passes` that nobody needs: the gradient of the images."""
    for _, layer, shape in steps(config.network, config.image_shape):
        if isinstance(layer, (Convolution, Dense)):
            return prod(shape) + prod(layer.trace(shape, "").output)
    return 0


def sections(network: Network, image: Shape) -> tuple[Stage, ...]:
    """A section for every layer, a ReLU with the one before; the last computes the loss."""
    found: list[Stage] = []
    for name, layer, before in steps(network, image):
        if not found or not isinstance(layer, Relu):
            one = layer.trace(before, name)
            found.append(
                Stage(
                    name,
                    tuple(each.name for each in found[-1:]),
                    gives={name: {"rows": prod(one.output)}},
                    variables=tuple(v.name for v in one.variables),
                    work={"rows": one.flops},
                )
            )
    return (*found[:-1], replace(found[-1], gives={}))


def describe(name: str, config: CnnConfig, optimizer: Optimizer) -> Model:
    """The description of an image model; a ValueError where layers or logits do not fit."""
    whole = trace(config.network, config.image_shape)
    if whole.output != (config.classes,):
        raise ValueError(
            f"{name} ends in shape {whole.output}: it must end in {config.classes} logits"
        )
    return Model(
        name=name,
        workload="cnn",
        unit="images",
        variables=whole.variables,
        optimizer=optimizer,
        forward_flops_per_unit=float(whole.flops),
        spared_flops_per_unit=float(whole.spared),
        memory_passes_per_unit=float(whole.passes - unneeded_passes(config)),
        config=config,
        declare_sections=lambda: sections(config.network, config.image_shape),
    )


def described(
    name: str,
    image_size: int,
    classes: int,
    network: Callable[[], Network],
    batch: int,
    rate: float,
) -> Model:
    """A model trained by tf_cnn_benchmarks' rule: momentum 0.9, L2 of 4e-5 on every variable (its
    later versions spare batch norm's).
    """
    rule = Optimizer("sgd", rate=rate, momentum=0.9, weight_decay=4e-5)
    return describe(name, CnnConfig(image_size, classes, network(), default_batch=batch), rule)


def imagenet(
    name: str, image_size: int, batch: int, network: Callable[[], Network], rate: float = 0.005
) -> Named:
    """A model for ImageNet with its 1,001 classes."""
    return name, partial(described, name, image_size, 1001, network, batch, rate)


def cifar(
    name: str,
    network: Callable[[], Network],
    batch: int = 128,
    image_size: int = 32,
    rate: float = 0.1,
) -> Named:
    """A model for CIFAR-10 with its ten classes and a spare one."""
    return name, partial(described, name, image_size, 11, network, batch, rate)


def imagenet_resnet(layers: int, blocks: tuple[int, ...], batch: int) -> Iterator[Named]:
    """v1 and v1.5: the stride in the first 1x1 or in the 3x3; rate 0.128 for 256 images."""
    rate = 0.128 * batch / 256
    yield imagenet(f"resnet{layers}_v1", 224, batch, partial(resnet.imagenet, blocks, "1x1"), rate)
    yield imagenet(
        f"resnet{layers}_v1.5", 224, batch, partial(resnet.imagenet, blocks, "3x3"), rate
    )


# Rates are constants, since steps are timed: tf_cnn_benchmarks' own after warm-up and before the
# first decay, for the default batch on one GPU. Its 0.1 for AlexNet on CIFAR goes without momentum
# (its default) and overflows with it: 0.01 makes steps of the same size.

UNNORMALISED = 0.01


def tiny(
    name: str, image_size: int, network: Callable[..., Network], *sizes: Any, **more: Any
) -> Named:
    """A small model for CIFAR-10, of a network with these sizes that normalises nothing."""
    made = partial(network, *sizes, **more)
    return cifar(name, made, image_size=image_size, rate=UNNORMALISED)


def models_of(*members: Named) -> Mapping[str, Model]:
    """Models by name, each described when it is first asked for."""
    return LazyMapping(dict(members))


FOR_IMAGENET: Mapping[str, Model] = models_of(
    *imagenet_resnet(50, (3, 4, 6, 3), 64),
    *imagenet_resnet(101, (3, 4, 23, 3), 32),
    *imagenet_resnet(152, (3, 8, 36, 3), 32),
    imagenet("inception3", 299, 32, inception.inception3),
    imagenet("inception4", 299, 32, inception.inception4),
    imagenet("googlenet", 224, 32, inception.googlenet),
    *(imagenet(name, 224, 64, partial(plain.vgg, stages)) for name, stages in plain.VGG.items()),
    imagenet("alexnet", 227, 512, plain.alexnet),
    imagenet("overfeat", 231, 32, plain.overfeat),
    imagenet("lenet", 28, 32, plain.lenet),
    imagenet("trivial", 227, 32, plain.trivial),
)
"""Document 001's models on ImageNet, or on its smaller images of random numbers."""

FOR_CIFAR: Mapping[str, Model] = models_of(
    cifar("alexnet_cifar", plain.alexnet_cifar, rate=UNNORMALISED),
    *(
        cifar(f"resnet{6 * blocks + 2}", partial(resnet.cifar, blocks))
        for blocks in (3, 5, 7, 9, 18)
    ),
    cifar("densenet40_k12", partial(densenet.cifar, 12, 12), batch=64),
    cifar("densenet100_k12", partial(densenet.cifar, 32, 12), batch=64),
)
"""Document 001's eight on CIFAR-10."""

SMALL: Mapping[str, Model] = models_of(
    # the same topology for CPUs, and one block of every kind for tests
    cifar("resnet_small", partial(resnet.cifar, 1, width=8), image_size=16),
    cifar("resnet_tiny", resnet.tiny, image_size=8),
    # every other family on few pixels with few filters, and without dropout: placements and
    # frameworks can be compared in numbers
    tiny("alexnet_tiny", 67, plain.alexnet, 11, shrink=32, dropout=0),
    tiny("alexnet_cifar_tiny", 12, plain.alexnet_cifar, shrink=8),
    tiny("overfeat_tiny", 75, plain.overfeat, 11, shrink=32, dropout=0),
    tiny("vgg_tiny", 32, plain.vgg, (1, 1, 2, 2, 2), 11, shrink=16, dropout=0),
    tiny("googlenet_tiny", 40, inception.googlenet, 11, shrink=4),
    cifar(
        "inception3_tiny",
        partial(inception.inception3, 11, shrink=16, a_filters=(32,), c_filters=(128,)),
        image_size=75,
    ),
    cifar(
        "inception4_tiny",
        partial(inception.inception4, 11, shrink=16, dropout=0, blocks=(1, 1, 1)),
        image_size=75,
    ),
    cifar("densenet_tiny", partial(densenet.cifar, 2, 3, first=4), image_size=12),
)

FAMILY: Mapping[str, Model] = models_of(
    *(
        (
            one.name,
            partial(
                described, one.name, one.image_size, family.CLASSES, one.network, 64, UNNORMALISED
            ),
        )
        for one in family.MEMBERS
    )
)
"""Made-up models: one formula, four numbers."""

MODELS: Mapping[str, Model] = LazyMapping(
    {
        name: partial(models.__getitem__, name)
        for models in (FOR_IMAGENET, FOR_CIFAR, SMALL, FAMILY)
        for name in models
    }
)
