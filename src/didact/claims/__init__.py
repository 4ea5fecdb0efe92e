"""Claims: what five courses state, as checks that run. Importing this package registers all of them.

`stated.tsv` lists the statements. Each course has a folder, each of its chapters a module of checks. `registry` holds
the decorators of checks and the verdicts, `forms` the ways in which a page states a value, `helpers` what many checks
need. `measured_tables` are the courses' tables of measured numbers, as data, `measured_table` is the rule that judges a
measurement, `reproduce` and `timing` measure, and `measured/` holds the saved measurements. `page` and `typeset` render
the page of `didact check --html`.
"""

from didact.claims import fleuret, gaba, groudiev, lhotte, van_schependom
from didact.claims.measured_table import MeasurementRecord, get_table, judge_table, load_records
from didact.claims.measured_tables import TABLES
from didact.claims.registry import Outcome, Statement, check_claim, load_statements, select_statements

__all__ = [
    "TABLES", "MeasurementRecord", "Outcome", "Statement", "check_claim", "fleuret", "gaba", "get_table", "groudiev",
    "judge_table", "lhotte", "load_records", "load_statements", "select_statements", "van_schependom",
]  # fmt: skip
