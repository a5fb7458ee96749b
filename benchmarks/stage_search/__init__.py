"""Search for the best placement of a model's stages by their measured costs, and measure it.

    python -m benchmarks.stage_search --devices 2
    python -m benchmarks.stage_search framework=tensorflow --devices 2

StageRecords go to data/stages, the Runs that it measures to data/runs. The model is document 003's
two towers, whose page (33) shows what was found.
"""
