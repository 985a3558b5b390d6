"""asr-serve: model folders → a server with a page, OpenAI's API and live streams."""

import ipaddress
import os
from contextlib import ExitStack

from asr.cli.command import add_device, command, parser, place
from asr.cli.decode_arguments import add_options
from asr.errors import UserError
from asr.hub import find_model
from asr.logging import logger
from asr.options import declared
from asr.serving.options import LOOPBACK, ServingOptions
from asr.transcription.endpoints import EndpointOptions
from asr.transcription.options import SearchOptions

EXAMPLES = """The page is at http://127.0.0.1:8000, an API compatible with OpenAI's under /v1. See docs/serving.md.

To require a token, set ASR_TOKEN in the environment. Without a token, asr-serve accepts connections
from this machine only.

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
        help="model folder; repeat to serve several, as NAME=DIR or under the names of their folders",
    )
    args.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1)"
    )
    args.add_argument("--port", type=int, default=8000, help="port to listen on (default 8000)")
    args.add_argument(
        "--without-token", action="store_true", help="serve everyone who can reach --host"
    )
    args.add_argument(
        "--certfile", type=place, metavar="PEM", help="certificate, for https (needs --keyfile)"
    )
    args.add_argument("--keyfile", type=place, metavar="PEM", help="private key of --certfile")
    args.add_argument(
        "--behind-proxy",
        action="store_true",
        help="trust X-Forwarded-For from a proxy on this machine",
    )
    add_device(args)
    args.add_argument(
        "--batch-seconds",
        type=float,
        help="seconds of audio that are searched together (default 120 on a CPU, 2000 on a GPU)",
    )
    args.add_argument("--precision", default="fp32", choices=["fp32", "bf16"], help="default: fp32")
    for options in (SearchOptions, EndpointOptions, ServingOptions):
        add_options(args, options)
    return args


@command(hint="the server is down")
def main(argv):
    """Serve until stopped."""
    args, token = arguments().parse_args(argv), os.environ.get("ASR_TOKEN", "")
    args.lm = find_model(args.lm) if args.lm else args.lm
    how, ends, limits = (_of(args, it) for it in (SearchOptions, EndpointOptions, ServingOptions))
    check(args, token)
    models = named(args.model)
    if not token:
        limits = _of(args, ServingOptions, hosts=hosts(args))
    try:
        from asr.serving.app import create_app
        from asr.serving.server import serve
    except ImportError as error:
        raise UserError(f"asr-serve needs {error.name}; pip install 'asr-toolkit[serve]'") from None
    import asr
    from asr.device import remember_few_shapes
    from asr.serving.engine import Bounds, Engine

    remember_few_shapes()
    seconds = args.batch_seconds
    bounds = Bounds(limits.max_requests, 3600 * limits.max_hours, limits.max_streams, seconds)
    with ExitStack() as stack:
        engines = {}
        for name, path in models.items():
            recognizer = asr.load(path, args.device)
            engines[name] = Engine(recognizer, how, ends, args.precision, bounds)
            stack.callback(engines[name].close, 0.0)
        for engine in engines.values():
            engine.warm_up()
        scheme = "https" if args.certfile else "http"
        logger.info(f"asr-serve: {', '.join(engines)} at {scheme}://{args.host}:{args.port}")
        app = create_app(engines, limits, token)
        listen = {"host": args.host, "port": args.port}
        tls = {"ssl_certfile": args.certfile, "ssl_keyfile": args.keyfile}
        serve(app, args.behind_proxy, **listen, **tls)


def _of(args, options, **more):
    """Make options of the arguments, checked."""
    return options(
        **{option.name: getattr(args, option.name) for option in declared(options)} | more
    )


def hosts(args):
    """List the host names of a server without a token. DNS could send a stranger's page here by any other name."""
    return ",".join(filter(None, (args.hosts, args.host, *LOOPBACK)))


def check(args, token):
    """Refuse arguments that are unsafe or make no sense together."""
    if bool(args.certfile) != bool(args.keyfile):
        raise UserError("--certfile and --keyfile: give both, or neither")
    for path in filter(None, (args.certfile, args.keyfile)):
        if not os.path.isfile(path):
            raise UserError(f"{path}: no such file")
    if not 0 <= args.port <= 65535:
        raise UserError(f"--port: got {args.port}, expected 0 to 65535")
    if args.batch_seconds is not None and not args.batch_seconds > 0:
        raise UserError(f"--batch-seconds: got {args.batch_seconds:g}, expected more than 0")
    if not (token or args.without_token or is_loopback(args.host)):
        raise UserError(
            f"--host: got {args.host}, which other machines can reach; set ASR_TOKEN to require a token, "
            "or add --without-token"
        )


def is_loopback(host):
    """Whether an address can be reached from this machine only."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def named(given):
    """Map the models' names to their folders."""
    models = {}
    for one in given:
        name, is_named, path = one.partition("=")
        if not is_named or os.path.exists(one):
            name, path = os.path.basename(os.path.abspath(one)), one
        if name == "model":  # of a training's folder: exp/mini/model
            name = os.path.basename(os.path.dirname(os.path.abspath(path))) or name
        folder = find_model(path)
        if folder != path and not is_named:
            name = name.partition("@")[0]  # without the revision of a published model
        if not os.path.isdir(folder):
            raise UserError(f"{folder}: no such model folder; asr-train makes one")
        if name in models or not name.isprintable() or not name:
            raise UserError(f"--model: got {one}; give each a name of its own, as NAME=DIR")
        models[name] = folder
    return models


if __name__ == "__main__":
    main()
