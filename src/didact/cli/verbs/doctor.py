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
        width = max(len(row["what"]) for row in findings)
        for row in findings:
            status, color = ("no", "red") if not row["ok"] else ("--", "yellow") if row["then"] else ("ok", "green")
            advice = f"  ({row['then']})" if row["then"] else ""
            echo(f"{click.style(status, fg=color)}  {row['what']:<{width}}  {row['found']}{advice}")
        echo(
            "everything needed is there"
            if all(r["ok"] for r in findings)
            else "some things will not work: see the lines marked no"
        )

    print_result({"ok": all(r["ok"] for r in findings), "findings": findings}, as_json, show)
