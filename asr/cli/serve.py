"""asr-serve: model folders → a server with a page, OpenAI's API and live streams."""

import os

from asr.cli.command import command, parser, place
from asr.cli.decode_arguments import add_options
from asr.errors import UserError
from asr.serving.options import ServingOptions
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import SearchOptions

EXAMPLES = """The page is at http://127.0.0.1:8000, the API below /v1 as OpenAI's. docs/serving.md has more.

examples:
  asr-serve --model exp/mini/model
  asr-serve --model exp/english/model --model exp/mandarin/model --port 9000
  ASR_TOKEN=secret asr-serve --model exp/mini/model --host 0.0.0.0 --certfile cert.pem --keyfile key.pem
"""


def arguments():
    """Describe the command's arguments."""
    args = parser("asr-serve", "Serve trained models over HTTP.", EXAMPLES)
    args.add_argument(
        "--model",
        type=place,
        required=True,
        action="append",
        metavar="DIR",
        help="model folder of asr-train; several are served by the names of their folders",
    )
    args.add_argument(
        "--host", default="127.0.0.1", help="address to listen at (default 127.0.0.1)"
    )
    args.add_argument("--port", type=int, default=8000, help="default 8000")
    args.add_argument("--device", default="auto", choices=["auto", "cpu", "cuda"])
    args.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="default: fp32")
    args.add_argument("--certfile", type=place, metavar="PEM", help="certificate, for https")
    args.add_argument("--keyfile", type=place, metavar="PEM", help="its key")
    add_options(args, SearchOptions)
    add_options(args, EndpointOptions)
    add_options(args, ServingOptions)
    return args


@command
def main(argv):
    """Serve until stopped."""
    args = arguments().parse_args(argv)
    try:
        import uvicorn

        from asr.serving.app import create_app
    except ImportError as error:
        raise UserError(f"asr-serve needs {error.name}; pip install 'asr-toolkit[serve]'") from None
    import asr
    from asr.options import declared
    from asr.serving.engine import Engine

    def of(options):
        return options(**{option.name: getattr(args, option.name) for option in declared(options)})

    args.token = args.token or os.environ.get("ASR_TOKEN", "")
    how, ends, limits = of(SearchOptions), of(EndpointOptions), of(ServingOptions)
    engines = {
        os.path.basename(os.path.normpath(path)): Engine(
            asr.load(path, args.device), how, ends, args.precision
        )
        for path in args.model
    }
    app = create_app(engines, limits)
    uvicorn.run(
        app,
        host=args.host,
        port=args.port,
        ssl_certfile=args.certfile,
        ssl_keyfile=args.keyfile,
        log_level="warning",
    )


if __name__ == "__main__":
    main()
