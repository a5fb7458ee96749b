"""What the study adds to `multigpu`: the entry points that pyproject.toml declares, as a checkout
that is run without being installed has them.
"""

ENTRY_POINTS = {
    "commands": {
        "claims": "multigpu_study.commands:CLAIMS",
        "collectives": "multigpu_study.commands:COLLECTIVES",
        "synchrony": "multigpu_study.commands:SYNCHRONY",
        "hosts": "multigpu_study.commands:HOSTS",
        "stages": "multigpu_study.commands:STAGES",
    },
    "selections": {"undecided": "multigpu_study.commands:UNDECIDED"},
    "experiments": {
        "synchrony": "multigpu.synchrony.kind:SYNCHRONY",
        "stages": "multigpu.stages.kind:STAGES",
    },
    "grids": {"documents": "multigpu_study.grids"},
    "fragments": {"claims": "multigpu.claims.page:claims_page"},
    "printed": {"documents": "multigpu.published:published_of"},
}
"""Kind (the group without "multigpu.") -> name -> "module:object"."""
