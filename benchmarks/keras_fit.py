"""Keras' own loop, `model.fit`: plain, and under MirroredStrategy on all GPUs here, or on two
logical devices of the CPU.

    python benchmarks/keras_fit.py --out data/keras/fit.csv

A row is one repeat of one way: samples, seconds of the processor (all threads) and of the clock,
    the machine's load when it began, and how
far the weights are from those of plain `fit` after one epoch of the same batches. Logical devices
share the processor, so that on a CPU the strategy can show what it costs and never what it gains; a
loaded machine's clock says nothing.
"""

import argparse
import os
import time
from pathlib import Path

import keras
import numpy as np
import pandas as pd
import tensorflow as tf

SAMPLES, BATCH, EPOCHS = 512, 64, 12


def model() -> keras.Model:
    """A small CNN with the same weights each time."""
    keras.utils.set_random_seed(1)
    layers = [
        keras.layers.Conv2D(16, 3, activation="relu"),
        keras.layers.Conv2D(32, 3, strides=2, activation="relu"),
    ]
    made = keras.Sequential(
        [keras.Input((32, 32, 3)), *layers, keras.layers.Flatten(), keras.layers.Dense(10)]
    )
    made.compile(
        keras.optimizers.SGD(0.05), keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    )
    return made


def main() -> None:
    """Measure the ways in turn and write their rows."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--repeats", type=int, default=5)
    arguments = parser.parse_args()
    gpus = tf.config.list_physical_devices("GPU")
    if not gpus:
        cpu = tf.config.list_physical_devices("CPU")[0]
        tf.config.set_logical_device_configuration(
            cpu, [tf.config.LogicalDeviceConfiguration()] * 2
        )
    mirrored = tf.distribute.MirroredStrategy(None if gpus else ["/cpu:0", "/cpu:1"])
    draw = np.random.default_rng(0)
    images, labels = draw.random((SAMPLES, 32, 32, 3), np.float32), draw.integers(10, size=SAMPLES)
    made, after = {}, {}
    for way, strategy in {"plain": tf.distribute.get_strategy(), "mirrored": mirrored}.items():
        with strategy.scope():
            made[way] = model()
        made[way].fit(images, labels, batch_size=BATCH, shuffle=False, verbose=0)
        after[way] = np.concatenate([weight.ravel() for weight in made[way].get_weights()])
    rows = []
    for repeat in range(arguments.repeats):
        for way, one in made.items():
            load, cpu_s, wall_s = os.getloadavg()[0], time.process_time(), time.perf_counter()
            one.fit(images, labels, batch_size=BATCH, epochs=EPOCHS, shuffle=False, verbose=0)
            spent = {"cpu_s": time.process_time() - cpu_s, "wall_s": time.perf_counter() - wall_s}
            replicas = mirrored.num_replicas_in_sync if way == "mirrored" else 1
            apart = float(abs(after[way] - after["plain"]).max())
            said = {
                "way": way,
                "device": "GPU" if gpus else "CPU",
                "replicas": replicas,
                "repeat": repeat,
                "samples": SAMPLES * EPOCHS,
            }
            rows.append(
                said
                | spent
                | {
                    "load": load,
                    "apart": apart,
                    "keras": keras.__version__,
                    "tensorflow": tf.__version__,
                }
            )
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    pd.DataFrame(rows).round({"cpu_s": 4, "wall_s": 4, "load": 2}).to_csv(
        arguments.out, index=False
    )


if __name__ == "__main__":
    main()
