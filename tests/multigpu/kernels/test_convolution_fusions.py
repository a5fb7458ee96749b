"""What the benchmark of fused convolutions counts and adds up."""

import pandas as pd
from benchmarks.convolution_fusions import convolutions, gains


def test_a_fusion_saves_where_it_takes_less_than_what_it_joins_and_costs_nothing_elsewhere() -> (
    None
):
    table = pd.DataFrame(
        {
            "dtype": "float16",
            "batch": 64,
            "count": [3, 1, 2],
            "convolution": 1.0,
            "statistics_pass": 0.5,
            "normalise_pass": 0.25,
            "statistics": [1.25, 1.75, None],  # pays, costs, cannot be
        }
    )
    assert gains(table).loc["float16", 64].to_dict() == {"statistics": 0.75}
    counted = convolutions("resnet50_v1.5", 1, "cpu")
    assert sum(counted.values()) == 53
    # two of each of 16 blocks follow a norm of their own block
    assert sum(count for layer, count in counted.items() if layer.normed) == 32
