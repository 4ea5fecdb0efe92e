"""didact doctor."""

import click

from didact.cli.words import AS_JSON, answer


@click.command("doctor")
@AS_JSON
def command(as_json: bool) -> None:
    """Check this machine: torch, GPUs, memory, packages, data folders; say what will not work and why."""
    from didact.doctor import examine

    found = examine()

    def show() -> None:
        wide = max(len(row["what"]) for row in found)
        for row in found:
            word, colour = ("no", "red") if not row["ok"] else ("--", "yellow") if row["then"] else ("ok", "green")
            why = f"  ({row['then']})" if row["then"] else ""
            click.echo(f"{click.style(word, fg=colour)}  {row['what']:<{wide}}  {row['found']}{why}")
        click.echo("everything needed is there" if all(r["ok"] for r in found) else "some things will not work: see the lines marked no")

    answer({"ok": all(r["ok"] for r in found), "findings": found}, as_json, show)
