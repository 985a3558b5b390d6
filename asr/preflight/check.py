"""Check the data before training, list all problems at once, and estimate the cost. Nothing is written."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from asr.errors import UserError
from asr.preflight.prediction import Measurement, Prediction, measure, predict, rows, settle
from asr.preflight.problems import DataSet, Problem, shared
from asr.training.build import build, fine_tune
from asr.training.layers import never_thaws
from asr.training.task import Experiment


@dataclass(frozen=True)
class CheckReport:
    """The result of a check.

    notes        on what init_from copies
    prediction   None without a usable example; measurement: None if no step could be run, too
    """

    sources: list[DataSet]
    problems: list[Problem]
    notes: list[str]
    prediction: Prediction | None
    measurement: Measurement | None

    @property
    def refused(self) -> bool:
        """Whether training would refuse to start."""
        return any(problem.stops for problem in self.problems)

    def text(self) -> str:
        """Format it for the terminal."""
        parts = [
            aligned([(s.role, s.path, s.message) for s in self.sources]),
            problem_lines(self.problems),
        ]
        parts += [self.notes] * bool(self.notes)
        parts += [aligned(rows(self.prediction, self.measurement))] if self.prediction else []
        return "\n\n".join("\n".join(lines) for lines in parts) + "\n"


def check(experiment: Experiment, tests: Sequence[str] = (), progress: bool = False) -> CheckReport:
    """Check an experiment's data, and run steps of its training on a copy of the model.

    tests     further manifests or texts, which should share nothing with train and dev
    progress  show a bar on stderr
    raises    UserError if no model can be built of the settings
    """
    experiment = experiment.resolved()
    model, problems, notes = build(experiment), [], []
    try:
        transfer = fine_tune(experiment, model, continued=False)
        notes = transfer.message.splitlines() if transfer else []
    except UserError as error:
        problems.append(Problem(True, "settings", str(error)))
    paths = [
        ("train", experiment.data.train),
        ("dev", experiment.data.dev),
        *(("test", path) for path in tests),
    ]
    looks = [experiment.look(role, path, model, progress) for role, path in paths]
    problems += [problem for each in looks for problem in each.problems]
    for one, other in itertools.combinations([each.source for each in looks], 2):
        problems += shared(one, other)
    prediction, measurement, train = None, None, looks[0].usable
    if train is not None:
        try:
            experiment = settle(experiment, model, train)
            prediction = predict(experiment, model, train)
            if frozen := never_thaws(model, prediction.epochs * prediction.steps):
                problems.append(Problem(False, "settings", frozen))
            measurement = measure(experiment, model, train)
        except UserError as error:
            problems.append(Problem(True, "settings", str(error)))
    problems.sort(key=lambda problem: not problem.stops)
    return CheckReport([each.source for each in looks], problems, notes, prediction, measurement)


def problem_lines(problems: Sequence[Problem]) -> list[str]:
    """Format the problems: each with its examples and its fix, then a verdict."""
    heads = aligned([(("warning", "error")[p.stops], p.role, shares(p), p.what) for p in problems])
    lines = []
    for head, problem in zip(heads, problems, strict=True):
        lines += [head, *(f"    {example}" for example in problem.examples)]
        lines += [f"    and {problem.count - len(problem.examples):,} more"] * (
            problem.count > len(problem.examples) > 0
        )
        lines += [f"    fix: {problem.fix}"] * bool(problem.fix)
    errors = sum(problem.stops for problem in problems)
    verdict = "asr-train would refuse this" if errors else "asr-train would start"
    counted = f"{errors} kinds of error, {len(problems) - errors} of warning"
    return [*lines, f"{verdict} ({counted})" if problems else "no problem found"]


def shares(problem: Problem) -> str:
    """Format the share of the examples that have a problem."""
    if not problem.of:
        return ""
    return f"{problem.count:,} of {problem.of:,} ({problem.count / problem.of:.1%})"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Format rows as lines with aligned columns."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
