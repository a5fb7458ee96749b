"""The translation models in TensorFlow."""

from dataclasses import dataclass, replace

import tensorflow as tf

from multigpu.spec.errors import Unsupported
from multigpu.spec.model import Model
from multigpu.workloads.nmt.description import NmtConfig
from multigpu.workloads.tensorflow_module import Form, StepModule, Tensors

State = tuple[tf.Tensor, tf.Tensor]
"""Hidden and cell state of a stack, each (layers, B, units)."""


class Nmt(StepModule):
    """Sum of a shard's cross entropies over its target words. Kernels keep the description's
    layout, cuDNN's own; CPUs want `matrix`.
    """

    lookup_arrays = {"source_embedding": "source", "target_embedding": "target_input"}

    def __init__(self, model: Model, form: Form) -> None:
        self.config: NmtConfig = model.config
        self.form = form

    def loss(
        self, values: Tensors, batch: Tensors, rows: Tensors, statistics: Tensors
    ) -> tuple[tf.Tensor, Tensors]:
        """Of int64 target_output (B, T) and lengths (B,), int32 source_length_host (B,); rows (B,
        S, units) and (B, T, units).
        """
        source, target = (
            tf.transpose(tf.cast(rows[name], self.form.compute), [1, 0, 2])
            for name in self.lookup_arrays
        )
        state = self._encode(values, source, batch)
        output, _ = self._run(values, "decoder", target, state)  # (T, B, D)
        logits = tf.matmul(
            tf.reshape(output, [-1, self.config.units]),
            tf.cast(values["projection"], self.form.compute),
        )
        targets = tf.transpose(batch["target_output"])  # (T, B)
        terms = tf.nn.sparse_softmax_cross_entropy_with_logits(
            tf.reshape(targets, [-1]), tf.cast(logits, self.form.dtype)
        )
        if not self.form.even:
            position = tf.range(tf.shape(targets, tf.int64)[0])[:, None]  # (T, 1)
            counted = tf.reshape(position < batch["target_length"], [-1])
            terms = tf.where(counted, terms, tf.zeros_like(terms))
        return tf.reduce_sum(terms), {}

    def _encode(self, values: Tensors, source: tf.Tensor, batch: Tensors) -> State:
        """The decoder's first state, (cells, B, D), after every sentence's own last word."""
        shape = [self.config.encoder_layers, tf.shape(source)[1], self.config.units]
        zero = tf.zeros(shape, source.dtype)
        if self.form.even:
            backwards = tf.reverse(source, [0])
        else:
            backwards = tf.reverse_sequence(
                source, batch["source_length"], seq_axis=0, batch_axis=1
            )
        _, first = self._run(values, "encoder_forward", source, (zero, zero), batch)
        _, second = self._run(values, "encoder_backward", backwards, (zero, zero), batch)
        hidden, cell = (
            tf.reshape(tf.stack(pair, 1), [-1, shape[1], shape[2]])
            for pair in zip(first, second, strict=True)
        )
        return hidden, cell  # cells: forward 0, backward 0, forward 1, backward 1

    def _run(
        self, values: Tensors, stack: str, x: tf.Tensor, state: State, ragged: Tensors | None = None
    ) -> tuple[tf.Tensor, State]:
        """A stack of cells over (T, B, D); `ragged`: sentences end at their source_length."""
        names = self.config.cell_names(stack)
        on_cudnn = self.form.recurrence == "fused" and self.form.cuda
        # under bf16 cuDNN's recurrence alone stays in the variables' type: TensorFlow 2.21's
        # gradient of it came back as zeros in bfloat16 on an H200
        kind = self.form.dtype if on_cudnn else self.form.compute
        kernels, biases = (
            [tf.cast(values[f"{name}_{part}"], kind) for name in names]
            for part in ("kernel", "bias")
        )
        cells = Cells(kernels, biases, self.config.forget_bias, self.config.dropout)
        ragged = None if self.form.even else ragged
        if on_cudnn:
            state = (tf.cast(state[0], kind), tf.cast(state[1], kind))
            y, after = cudnn(tf.cast(x, kind), state, cells, ragged)
            return tf.cast(y, x.dtype), after
        # TensorFlow's CPU kernel knows neither float64 nor bfloat16
        run = block_lstm if self.form.recurrence == "fused" and x.dtype == tf.float32 else stepwise
        return run(x, state, replace(cells, kernels=[matrix(kernel) for kernel in kernels]), ragged)


def build(model: Model, form: Form) -> Nmt:
    """The functions of a translation model; Unsupported where the form cannot be computed."""
    if form.xla and form.recurrence == "fused":
        raise Unsupported(
            "XLA cannot compile a library's LSTM call: choose recurrence 'stepwise' or execution"
            " 'graph'"
        )
    return Nmt(model, form)


def dropped(x: tf.Tensor, dropout: float) -> tf.Tensor:
    """As PyTorch's twin; every replica has a generator, and a mask, of its own."""
    return tf.nn.dropout(x, dropout) if dropout else x


@dataclass(frozen=True)
class Cells:
    """Lowest first, gates i, f, g, o. kernels: for cuDNN all weights of input and then of hidden
    state, else [inputs + units, 4 units].
    """

    kernels: list[tf.Tensor]
    biases: list[tf.Tensor]
    forget_bias: float
    dropout: float = 0.0


def cudnn(
    x: tf.Tensor, state: State, cells: Cells, ragged: Tensors | None
) -> tuple[tf.Tensor, State]:
    """All cells and positions in one call of cuDNN (with dropout, a call a cell), its parameters
    all matrices, then two biases a cell, the second forget_bias at gate f.
    """
    if cells.dropout and len(cells.kernels) > 1:
        ends = []
        for cell, (kernel, bias) in enumerate(zip(cells.kernels, cells.biases, strict=True)):
            own = (state[0][cell : cell + 1], state[1][cell : cell + 1])
            x, end = cudnn(x, own, replace(cells, kernels=[kernel], biases=[bias]), ragged)
            ends.append(end)
        return x, (
            tf.concat([hidden for hidden, _ in ends], 0),
            tf.concat([cell for _, cell in ends], 0),
        )
    x = dropped(x, cells.dropout)
    units = int(cells.biases[0].shape[0]) // 4
    zero, one = tf.zeros([units], x.dtype), tf.fill([units], tf.cast(cells.forget_bias, x.dtype))
    second = tf.concat([zero, one, zero, zero], 0)
    flat = tf.concat(
        [tf.reshape(kernel, [-1]) for kernel in cells.kernels]
        + [b for bias in cells.biases for b in (bias, second)],
        0,
    )
    common = {
        "input": x,
        "input_h": state[0],
        "input_c": state[1],
        "params": flat,
        "rnn_mode": "lstm",
        "is_training": True,
    }
    # cuDNN 9 refuses the op without lengths, so equal ones are said too (an int32 array, which
    # TensorFlow keeps on the host)
    if ragged is None:
        lengths = tf.fill([tf.shape(x)[1]], tf.shape(x)[0])
    else:
        lengths = ragged["source_length_host"]
    y, hidden, cell, *_ = tf.raw_ops.CudnnRNNV3(sequence_lengths=lengths, time_major=True, **common)
    return y, (hidden, cell)


def matrix(kernel: tf.Tensor) -> tf.Tensor:
    """[2, 4 units, units] -> [2 units, 4 units], gates still i, f, g, o."""
    return tf.reshape(tf.transpose(kernel, [0, 2, 1]), [-1, kernel.shape[1]])


def swapped(gates: tf.Tensor) -> tf.Tensor:
    """i, f, g, o -> i, g, f, o along the last axis: TensorFlow's own order."""
    i, f, g, o = tf.split(gates, 4, -1)
    return tf.concat([i, g, f, o], -1)


def last_of(x: tf.Tensor, ragged: Tensors | None) -> tf.Tensor:
    """(T, B, D) -> (B, D): each sentence's last position."""
    if ragged is None:
        return x[-1]
    last = ragged["source_length"] - 1
    places = tf.stack([last, tf.range(tf.shape(x, tf.int64)[1])], 1)
    return tf.gather_nd(x, places)


def block_lstm(
    x: tf.Tensor, state: State, cells: Cells, ragged: Tensors | None
) -> tuple[tf.Tensor, State]:
    """All positions of a cell in one call of TensorFlow's CPU kernel, cell after cell. float32."""
    hidden, cell = [], []
    for layer, (weights, bias) in enumerate(zip(cells.kernels, cells.biases, strict=True)):
        unused = tf.zeros([weights.shape[1] // 4], x.dtype)
        _, cs, _, _, _, _, h = tf.raw_ops.BlockLSTM(
            seq_len_max=tf.shape(x, tf.int64)[0],
            x=dropped(x, cells.dropout),
            cs_prev=state[1][layer],
            h_prev=state[0][layer],
            w=swapped(weights),
            wci=unused,
            wcf=unused,
            wco=unused,
            b=swapped(bias),
            forget_bias=cells.forget_bias,
            cell_clip=-1,
            use_peephole=False,
        )
        hidden.append(last_of(h, ragged))
        cell.append(last_of(cs, ragged))
        x = h
    return x, (tf.stack(hidden), tf.stack(cell))


def stepwise(
    x: tf.Tensor, state: State, cells: Cells, ragged: Tensors | None
) -> tuple[tf.Tensor, State]:
    """As `block_lstm`, in any type: a loop over positions of small operations ("dynamic rnn")."""
    length, layers = tf.shape(x)[0], len(cells.kernels)
    shape = [x.shape[1], cells.kernels[-1].shape[1] // 4]  # of one position's output
    inputs = tf.TensorArray(x.dtype, size=length, element_shape=x.shape[1:]).unstack(x)
    outputs = tf.TensorArray(x.dtype, size=length, element_shape=shape)
    lengths = None if ragged is None else ragged["source_length"][:, None]  # (B, 1)
    start = tuple(tf.unstack(state[0], layers)), tuple(tf.unstack(state[1], layers))

    def body(time: tf.Tensor, hidden: tuple, cell: tuple, outputs: tf.TensorArray) -> tuple:
        value = inputs.read(time)  # (B, D)
        hiddens, memories = [], []
        for layer in range(layers):
            joined = tf.concat([dropped(value, cells.dropout), hidden[layer]], 1)
            gates = tf.matmul(joined, cells.kernels[layer]) + cells.biases[layer]
            i, f, g, o = tf.split(gates, 4, 1)
            c = tf.sigmoid(f + tf.cast(cells.forget_bias, f.dtype)) * cell[layer] + tf.sigmoid(
                i
            ) * tf.tanh(g)
            value = tf.sigmoid(o) * tf.tanh(c)
            running = None if lengths is None else tf.cast(time, tf.int64) < lengths
            hiddens.append(value if running is None else tf.where(running, value, hidden[layer]))
            memories.append(c if running is None else tf.where(running, c, cell[layer]))
        return time + 1, tuple(hiddens), tuple(memories), outputs.write(time, value)

    _, hidden, cell, outputs = tf.while_loop(
        lambda time, *_: time < length,
        body,
        (tf.constant(0), *start, outputs),
        maximum_iterations=x.shape[0],
    )
    y = outputs.stack()
    y.set_shape([x.shape[0], *shape])
    return y, (tf.stack(hidden), tf.stack(cell))
