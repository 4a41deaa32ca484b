"""The command ``hypercaps study``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, plain, say
from hypercaps.cli.values import cluster_of, command_line, listed, refuse_together
from hypercaps.errors import StudyError

if TYPE_CHECKING:
    from hypercaps.study.plan import Study
    from hypercaps.study.study import StudyResult


@app.command(epilog="Example:  hypercaps study quick --out studies/quick")
def study(
    ctx: typer.Context,
    which: opt.StudyArg,
    *,
    out: opt.OutFolder,
    scenes: opt.Scenes = None,
    methods: opt.Methods = None,
    repeats: opt.Repeats = None,
    workers: opt.Workers = 1,
    cluster: opt.ClusterOption = None,
    budget: opt.Budget = None,
    debug: opt.Debug = False,
) -> None:
    """Run methods x scenes x label shares x seeds, and compare with the paper.

    Writes results.json, results.csv, results.md and results.html into DIR. Every
    finished run in DIR is kept and not repeated: a study that was stopped or
    killed continues with the same command. A run that fails is listed and does
    not stop the others. The exit code is 1 if every run failed, and 2 if no scene
    could be opened.
    """
    from hypercaps.cli import progress, tables
    from hypercaps.study.study import StudyCallbacks, run_study
    from hypercaps.study.study_file import open_study

    if budget is not None and not budget > 0:
        raise StudyError(f"a budget of {budget:g} minutes leaves no time for a run: give more than 0")
    console = console_out()
    refuse_together(ctx, "cluster", ("workers",))
    plan = open_study(which).only(methods=listed(methods), scenes=listed(scenes), repeats=repeats)
    try:
        with cluster_of(cluster) as pool, progress.StudyProgress(console, pool.slots if pool else workers) as shown:
            result = run_study(
                plan,
                out,
                workers=workers,
                cluster=pool,
                budget_minutes=budget,
                command=command_line(),
                callbacks=StudyCallbacks(progress.download_bar(console), shown.started, shown.run_done, shown.training),
            )
    except KeyboardInterrupt:
        console.print(f"Stopped: finished runs are in {plain(out)}; the same command continues with the rest.")
        raise typer.Exit(130) from None
    tables.print_study(console, out, result)
    _check_any_succeeded(plan, result)


def _check_any_succeeded(plan: Study, result: StudyResult) -> None:
    """Exit with an error if no run has a result; runs that the budget left for later are not failures."""
    if result.succeeded:
        return
    if len(result.missing) == len(plan.scenes):
        names = ", ".join(result.missing)
        raise StudyError(
            f"no run could be done: no scene of the study could be opened ({names}), for the reasons above"
        )
    if result.failed:
        say(f"[bold red]Error:[/] no run succeeded: all {result.failed} that were tried failed")
        raise typer.Exit(1)
