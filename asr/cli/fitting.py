"""asr-decode --tune and --calibrate: settings of the search, and confidences, by the texts of a dev set."""

from pathlib import Path

from asr.cli.command import emit
from asr.cli.decode import decoding
from asr.cli.decode_arguments import NAME
from asr.errors import UserError
from asr.logging import logger
from asr.outputs import check_output


def tune(args):
    """Print the word (or mixed) error rate of each setting of --tune, and then the best."""
    from asr.scoring.report import UNITS, percent, score_texts, units_of
    from asr.transcription.decoding import ModelLoader
    from asr.transcription.recordings import find
    from asr.transcription.tuning import parse_grid, tune

    references, how = texts_of_manifests(args, "--tune"), decoding(args)
    grid = parse_grid(args.tune, how.options)
    unit, results = units_of(references.values())[0], []
    how.check_files()
    recordings = find([], args.manifest)
    with ModelLoader(how, recordings) as load:
        for setting, texts in tune(
            load(), recordings, how.options, grid, how.batch_seconds, how.precision
        ):
            options = " ".join(
                f"--{name.replace('_', '-')} {value}" for name, value in setting.items()
            )
            results.append((score_texts(references, texts, unit).total.rate, options))
            emit(f"{percent(results[-1][0])}\t{options}")
    rate, options = min(results, key=lambda result: result[0])  # of equals the first
    logger.info(f"best: {options} ({UNITS[unit]} {percent(rate)} %)")


def texts_of_manifests(args, option):
    """Read the references that an option needs."""
    from asr.scoring.texts import match, read_texts

    if args.sources or not args.manifest or args.out or args.json:
        raise UserError(
            f"{option} needs the texts of a --manifest, and neither sound files nor --out nor --json"
        )
    references: dict[str, str] = {}
    for path in args.manifest:
        texts = read_texts(path)
        match(texts, texts, path, path)
        references |= texts
    return references


def calibrate(args):
    """Fit the confidences of words and utterances on a dev set; print how far they are off before and after."""
    from asr import confidence
    from asr.hub.cache import check_own
    from asr.scoring.calibration import fit_confidences
    from asr.transcription.options import effective
    from asr.transcription.recordings import find
    from asr.transcription.tuning import transcribe_raw

    check_own(args.model, "calibrate")
    references, how = texts_of_manifests(args, "--calibrate"), decoding(args)
    path = Path(args.model) / confidence.CALIBRATION
    check_output("--calibrate", path, NAME, (), args.force, confidence.is_calibration)
    how.check_files()
    fits = fit_confidences(transcribe_raw(how, find([], args.manifest)), references)
    confidence.Calibration(
        weights=confidence.digest(args.model),
        search=effective(how.options),
        words=fits["words"].curve,
        utterances=fits["utterances"].curve,
    ).save(args.model)
    logger.info("number, and expected calibration error before and after (by cross-validation):")
    for name, fit in fits.items():
        emit(f"{name}\t{fit.count}\t{fit.before:.4f}\t{fit.after:.4f}")
    logger.info(f"written: {path}")
