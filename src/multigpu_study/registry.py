"""List what the study adds to `multigpu`: the entry points that pyproject.toml declares, as a
checkout that is run without being installed has them.
"""

ENTRY_POINTS = {
    "commands": {
        "claims": "multigpu_study.commands:CLAIMS",
        "collectives": "multigpu_study.commands:COLLECTIVES",
        "synchrony": "multigpu_study.commands:SYNCHRONY",
        "train": "multigpu_study.commands:TRAIN",
    },
    "workloads": {"deepconn": "multigpu_study.workloads.deepconn:WORKLOAD"},
    "experiments": {
        "synchrony": "multigpu_study.synchrony.store:SYNCHRONY",
        "stages": "multigpu_study.stages.record:STAGES",
        "training": "multigpu_study.training.record:KIND",
    },
    "engines": {"stage": "multigpu_study.stages"},
    "grids": {"documents": "multigpu_study.grids"},
    "fragments": {
        "claims": "multigpu_study.claims.html:claims_page",
        "placements": "multigpu_study.placements.pictures:placements_page",
    },
    "printed": {"documents": "multigpu_study.published:published_of"},
}
"""Kind (the group without "multigpu.") -> name -> "module:object"."""
