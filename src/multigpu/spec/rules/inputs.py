"""Rules of inputs and of how batches reach a step."""

from multigpu.spec.errors import Refused
from multigpu.spec.rules.case import Case

# drawn from a law, so that batches have no order
ORDERLESS = ("synthetic", "lengths_000", "bucket_means_000")
# kept on devices or drawn from a law: nothing is fed meanwhile
ON_DEVICE = ("synthetic", "lengths_000", "planted_reviews")
# without a data set: nothing to cover in an epoch, nothing held out
DRAWN_ANEW = (*ORDERLESS, "planted_reviews")
# images that may cross to the device as bytes
CROSSING = ("synthetic_host", "jpeg_folder")


def known_inputs(case: Case) -> None:
    """Inputs must be among those of the workload."""
    run = case.run
    if run.inputs in case.inputs:
        return
    raise Refused(
        f"unknown inputs {run.inputs!r} of workload {run.workload!r}: choose one of"
        f" {', '.join(case.inputs)}"
    )


def batching(case: Case) -> None:
    """Length buckets need sentences of several lengths."""
    run = case.run
    if run.batching == "own" or run.inputs != "synthetic":
        return
    raise Refused(
        f"batching {run.batching!r} has no meaning for inputs 'synthetic', whose sentences all have"
        " one length: leave it out"
    )


def shuffle(case: Case) -> None:
    """Only a corpus has an order that can be shuffled."""
    run = case.run
    if not run.shuffle or run.inputs not in ORDERLESS:
        return
    raise Refused(
        f"shuffle has no meaning for inputs {run.inputs!r}, which are drawn and have no order:"
        " leave it out"
    )


def feeding(case: Case) -> None:
    """Workers, batches ahead, their stream and the images' type are of images from the host."""
    run = case.run
    fields = {
        "input_workers": run.input_workers,
        "prefetch": run.prefetch or None,
        "staging": run.staging,
        "image_dtype": run.image_dtype,
    }
    given = {name: value for name, value in fields.items() if value is not None}
    if not given:
        return
    name, value = next(iter(given.items()))
    unit = case.model.unit
    if unit != "images":
        raise Refused(f"{name} {value!r} has no meaning for {unit}: leave it out")
    if run.inputs in ON_DEVICE:
        raise Refused(
            f"{name} {value!r} has no meaning for inputs {run.inputs!r}, which stay on the device:"
            " leave it out"
        )
    _staging(case)
    _one_process_in_torch(case, f"{name} {value!r}")
    _image_dtype(case)
    _in_tensorflow(case, f"{name} {value!r}")


def _staging(case: Case) -> None:
    run = case.run
    if run.staging and not run.prefetch:
        raise Refused(
            f"staging {run.staging!r} copies batches ahead of their step: choose prefetch 1 or 2"
        )
    if run.staging and run.device_type == "cpu":
        raise Refused(
            f"staging {run.staging!r} is a stream of a GPU: leave it out on device_type 'cpu'"
        )


def _one_process_in_torch(case: Case, named: str) -> None:
    if case.run.processes == "one" and case.run.framework == "torch":
        raise Refused(
            f"{named} feeds one replica a process in 'torch': choose processes 'per_device'"
        )


def _image_dtype(case: Case) -> None:
    run = case.run
    if run.image_dtype and run.inputs not in CROSSING:
        raise Refused(
            f"image_dtype {run.image_dtype!r} has no meaning for inputs {run.inputs!r}: choose"
            f" {' or '.join(CROSSING)}"
        )
    if run.image_dtype and run.framework != "torch":
        raise Refused(
            f"image_dtype {run.image_dtype!r} exists in 'torch' only: leave it out or choose"
            " framework 'torch'"
        )


def _in_tensorflow(case: Case, named: str) -> None:
    run = case.run
    if run.framework != "tensorflow":
        return
    if run.inputs != "jpeg_folder" or run.input_workers is None:
        raise Refused(
            f"{named} is tf.data's in 'tensorflow': choose inputs 'jpeg_folder' and input_workers"
        )
    if run.processes != "one":
        raise Refused(
            f"{named} feeds all replicas from one process in 'tensorflow': choose processes 'one'"
        )


def feed(case: Case) -> None:
    """Strings are looked up by TensorFlow's stages; a captured step reads the same arrays again."""
    run = case.run
    if run.feed == "strings" and not (case.stages and run.framework == "tensorflow"):
        raise Refused(
            "feed 'strings' looks words up in TensorFlow's table of strings: choose framework"
            " 'tensorflow' and placement single, tower_per_gpu, alternating or searched"
        )
    if run.feed is not None and "captured" in run.execution:
        raise Refused(
            f"feed {run.feed!r} brings new arrays in every step, and a captured step reads the ones"
            " it was captured with"
        )
