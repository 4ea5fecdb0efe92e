"""didact doctor."""

import click

from didact.cli.options import JSON_OPTION, print_result
from didact.cli.terminal import echo


@click.command("doctor")
@JSON_OPTION
def command(as_json: bool) -> None:
    """Check this machine: PyTorch, GPUs, memory, packages, data folders; say what will not work and why."""
    from didact.doctor import run_checks

    findings = run_checks()

    def show() -> None:
        width = max(len(row["check"]) for row in findings)
        for row in findings:
            status, color = ("no", "red") if not row["ok"] else ("--", "yellow") if row["advice"] else ("ok", "green")
            echo(status, newline=False, fg=color)
            echo(f"  {row['check']:<{width}}  {row['result']}" + (f"  ({row['advice']})" if row["advice"] else ""))
        is_ready = all(row["ok"] for row in findings)
        echo("didact works here" if is_ready else "something will not work: see the lines marked no")

    print_result({"ok": all(row["ok"] for row in findings), "findings": findings}, as_json, show)
