"""How well does search find what was said, beside plain keywords, plain vectors and two peers' pipelines?

    python benchmarks/retrieval.py PATH... [--everywhere] [--systems crystal] [--cli N|all] [--json FILE]
                                   [--compare OLD.json] [--out docs/explanation/retrieval.md]

PATH is a set (``retrieval_data.py`` says of what form), a folder of sets, or a file of LongMemEval. Each set becomes
transcripts in a temporary HOME, ``crystal backfill`` imports them, and every question is asked through
``Crystal().search``, within the project of its conversation; some are asked again with ``crystal search --json``, which
must give the same hits. ``--from FILE`` prints again what ``--json`` kept. The exit code is 1 when a target was missed.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path


def main() -> None:
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[name] = "1"  # before NumPy is loaded
    given = _arguments()
    from retrieval_data import read_sets, sample
    from retrieval_report import Run, compared, report, verdicts
    from retrieval_run import Plan, measure

    if given.from_file:
        run = Run.read(given.from_file)
    else:
        run = Run(everywhere=given.everywhere, embedding=Path(given.embedding).name)
        count = None if given.cli == "all" else int(given.cli)
        former = None if given.baselines is None else Run.read(given.baselines)
        plan = Plan(
            given.everywhere,
            given.embedding,
            count,
            given.systems == "all",
            former,
            given.reuse,
            given.today,
            given.reworded,
        )
        with _folder(given.folder) as folder:
            for dataset in read_sets(given.paths):
                measure(sample(dataset, given.questions), folder / dataset.name, plan, run)
                if given.json:
                    run.write(given.json)
    print(report(run, by_category=given.categories))
    if given.compare:
        print(compared(Run.read(given.compare), run))
    if given.out:
        from retrieval_page import write_page

        write_page(run, given.out)
    sys.exit(int(any(one.verdict != "clear" for one in verdicts(run))))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("paths", nargs="*", type=Path, metavar="PATH")
    parser.add_argument("--everywhere", action="store_true", help="without the filter by project: harder")
    parser.add_argument("--today", action="store_true", help="do not tell crystal when the question was asked")
    parser.add_argument("--reworded", action="store_true", help="ask crystal in three wordings at once; with --cli 0")
    parser.add_argument("--embedding", default="embedded", help="embedded, or what `crystal models install` takes")
    parser.add_argument("--systems", default="all", help="all, or crystal: without the baselines")
    parser.add_argument("--baselines", type=Path, metavar="FILE", help="take the baselines from what --json kept")
    parser.add_argument("--questions", type=int, help="so many of each set, evenly spread")
    parser.add_argument("--cli", default="10", help="how many questions of each set by command: a number, or all")
    parser.add_argument("--categories", action="store_true", help="print each category of each set too")
    parser.add_argument("--folder", type=Path, help="keep everything here for a look at it")
    parser.add_argument("--reuse", action="store_true", help="take what an earlier run imported into --folder")
    parser.add_argument("--json", type=Path, help="keep the ranks of every question and system")
    parser.add_argument("--from", dest="from_file", type=Path, help="measure nothing, read what --json kept")
    parser.add_argument("--compare", type=Path, help="what --json kept before: paired differences to it")
    parser.add_argument("--out", type=Path, help="write the tables as Markdown, and plots beside it")
    given = parser.parse_args()
    if bool(given.paths) == bool(given.from_file):
        parser.error("give sets, or --from a file")
    if given.reuse and not given.folder:
        parser.error("--reuse needs --folder")
    return given


@contextlib.contextmanager
def _folder(kept: Path | None) -> Iterator[Path]:
    if kept is not None:
        kept.mkdir(parents=True, exist_ok=True)
        yield kept
        return
    with tempfile.TemporaryDirectory(prefix="crystal-retrieval-") as folder:
        yield Path(folder)


if __name__ == "__main__":
    main()
