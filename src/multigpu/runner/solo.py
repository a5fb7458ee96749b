"""The program of one process that dispatches for all devices, or whose session starts others: no
store, no votes and no group. On several hosts that of the first decides, and the others do what its
sessions ask.
"""

import importlib

from multigpu.runner.plan import Plan
from multigpu.runner.program import Program, run_program


def carry_out(plan: Plan) -> None:
    """Every item of the plan, or on another host than the first, what its sessions ask."""
    if plan.hosts == 1:
        Program(plan).run_plan()
        return
    members = importlib.import_module(f"multigpu.engines.{plan.framework}.members")
    if plan.host:
        members.attend(plan)
        return
    with members.Gathering(plan) as gathering:
        Program(plan, gathering=gathering).run_plan()


def main() -> None:
    """Entry point: `python -m multigpu.runner.solo PLAN`."""
    run_program(carry_out)


if __name__ == "__main__":
    main()
