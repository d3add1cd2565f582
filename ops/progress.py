"""Progress bars on standard error, so that standard output holds results only."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from ops import scoring
from ops.report import Outcome


@contextmanager
def evaluation_bar(console: Console, total: int) -> Iterator[Callable[[Outcome], None]]:
    """Count takes, with the word error rate so far; failures get a line each."""
    scores: list[scoring.Score] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        bar = progress.add_task("WER -", total=total)

        def update(outcome: Outcome) -> None:
            scores.append(outcome.score)
            if outcome.error:
                progress.console.print(
                    f"{outcome.take.name}: {outcome.error}", style="red", markup=False, highlight=False
                )
            rate = scoring.wer(scores)
            progress.update(
                bar, advance=1, description="WER -" if rate is None else f"WER {100 * rate:.2f} %"
            )

        yield update
