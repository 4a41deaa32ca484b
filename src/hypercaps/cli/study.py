"""hypercaps study"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hypercaps.cli.app import app
from hypercaps.cli.messages import console_out, plain, say
from hypercaps.cli.options import ClusterOption, Debug, cluster_of, command_line, listed, refuse_together
from hypercaps.errors import StudyError

if TYPE_CHECKING:
    from hypercaps.study.plan import Study
    from hypercaps.study.study import StudyResult


@app.command(epilog="Example:  hypercaps study quick --out studies/quick")
def study(
    ctx: typer.Context,
    which: Annotated[
        str,
        typer.Argument(
            metavar="FILE_OR_NAME",
            help="A TOML file, or paper-methods, paper-small, paper-cost, paper-convergence, few-labels or quick.",
        ),
    ],
    *,
    out: Annotated[
        Path, typer.Option(metavar="DIR", help="Folder for the study; what is done there is not done again.")
    ],
    repeats: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="Seeds 0 to N - 1 for every method; the study's if left out.")
    ] = None,
    methods: Annotated[str | None, typer.Option(metavar="a,b", help="Only these methods.")] = None,
    scenes: Annotated[str | None, typer.Option(metavar="x,y", help="Only these scenes.")] = None,
    workers: Annotated[int, typer.Option(min=1, metavar="N", help="Runs at the same time; they share the cores.")] = 1,
    cluster: ClusterOption = None,
    budget: Annotated[
        float | None, typer.Option(metavar="MINUTES", help="Stop after this time; the same command goes on later.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Run methods x scenes x label shares x seeds, and set the results beside the paper's.

    Writes results.json, results.csv, results.md and results.html into DIR. Every finished run is kept: a study that
    was stopped or killed goes on where it was. A run that fails is listed and does not stop the others. The exit code
    is 1 if every run failed, and 2 if no scene could be opened.
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
        console.print(f"Stopped: what is finished is in {plain(out)}, and the same command goes on with the rest.")
        raise typer.Exit(130) from None
    tables.print_study(console, out, result)
    _check_any_succeeded(plan, result)


def _check_any_succeeded(plan: Study, result: StudyResult) -> None:
    """End with an exit code other than 0 if no run has a result; runs that the budget left for later are no failure."""
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
