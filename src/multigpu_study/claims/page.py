"""The report's page of claims."""

from multigpu_study.claims.html import changes_table, claims_table, scoreboard, tally
from multigpu_study.claims.ledger import changes
from multigpu_study.claims.results import study_results


def claims_page() -> str:
    """Write a cell a claim, how many have which verdict, the table, and what changed."""
    results = study_results()
    return (
        f"{scoreboard(results)}\n{tally(results)}<div"
        f' class="wide">\n{claims_table(results)}</div>\n\n## Changed verdicts\n\n<div'
        f' class="wide">\n{changes_table(changes())}</div>\n'
    )
