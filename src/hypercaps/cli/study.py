"""The command ``hypercaps study``."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import typer

from hypercaps.cli import options as opt
from hypercaps.cli.messages import console_err, console_out, plain, say
from hypercaps.cli.root import app
from hypercaps.cli.values import CommandOptions, cluster_of, command_line, listed, refuse_together, set_threads
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
    quiet: opt.Quiet = False,
    debug: opt.Debug = False,
) -> None:
    """Run methods x scenes x label shares x seeds, and compare with the paper.

    Writes results.json, results.csv, results.md and results.html into DIR. Every
    finished run in DIR is kept and not repeated: a study that was stopped or
    killed continues with the same command, also in the middle of a run. Without
    --workers, runs use all cores, one after another; --workers 1 leaves a core
    free. A run that fails is listed and does not stop the others. The exit code
    is 1 if every run failed, and 2 if no scene could be opened. See
    docs/studies.md.
    """
    from hypercaps.study.study_file import open_study

    if budget is not None and not budget > 0:
        raise StudyError(f"a budget of {budget:g} minutes leaves no time for a run: give more than 0")
    options = CommandOptions.of(ctx)
    refuse_together(options, "cluster", ("workers",))
    plan = open_study(which).only(methods=listed(methods), scenes=listed(scenes), repeats=repeats)

    from hypercaps.cli import progress, tables
    from hypercaps.study.study import StudyCallbacks, run_study  # imports torch: only after the study could be read

    if "workers" in options.typed and workers == 1:
        set_threads(max(1, (os.cpu_count() or 1) - 1))  # one core stays free for other work
    console = console_err(quiet=quiet)
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
        say(f"Stopped: finished runs are in {plain(out)}; the same command continues where it was stopped.")
        raise typer.Exit(130) from None
    if quiet:
        done = f"{result.succeeded} of {result.planned} runs have a result"
        tables.print_result(console_out(), f"{done}, {result.failed} failed, {result.left} left", str(out))
    else:
        tables.print_study(console_out(), out, result)
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
