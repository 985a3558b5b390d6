"""The corpora that can be fetched: their parts, with the location, size and checksum of each file.

Checksums, of a file or of the files within it, prove the content. Sizes serve to plan disk space,
and to limit what a server can send and what an archive can hold. Archive sizes are exact, as the
servers report them, except for four round ones. Unpacked sizes are estimated from the hours of
sound, numbers of members from the published numbers of utterances.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from asr.download.archives import Budget
from asr.errors import UserError, did_you_mean

OPENSLR = (  # each serves the same files
    "https://www.openslr.org/resources",
    "https://openslr.trmal.net/resources",
    "https://openslr.elda.org/resources",
    "https://openslr.magicdatatech.com/resources",
)
BLOCKS = 1.1  # FLAC can hardly be compressed; a tenth more for the blocks of a file system
BESIDE = 1.1  # LibriSpeech's other files: transcripts of chapters, and folders
SLACK = 2  # an archive can hold at most twice what is known or estimated


@dataclass(frozen=True)
class CorpusPart:
    """One file of a corpus.

    name:      what `parts` calls it
    path:      of the file on each of `servers`
    bytes:     size of the file
    target:    the result in the corpus folder: the unpacked folder, or the file itself
    unpacked:  estimated size of that folder in bytes; 0 for a file that stays as it is
    members:   rough number of files and folders after unpacking
    digest:    "sha256:..." or "md5:...", or "" if none is published
    files:     without a digest: the list of SHA-256 digests of its files, in this package
    nested:    pattern of archives within the archive, relative to `target`
    """

    name: str
    servers: tuple[str, ...]
    path: str
    bytes: int
    target: str
    unpacked: int
    members: int = 0
    digest: str = ""
    files: str = ""
    nested: str = ""

    @property
    def file(self) -> str:
        """The name of the file."""
        return self.path.rpartition("/")[2]

    @property
    def most(self) -> int:
        """The most bytes that a server can send; some sizes are rounded."""
        return self.bytes * 11 // 10 + 1_000_000

    def budget(self) -> Budget:
        """Make the limits of what the archive can hold."""
        return Budget(SLACK * self.unpacked, SLACK * self.members)

    def urls(self, mirror: str = "") -> list[str]:
        """List the URLs of the file; `mirror`, a server with the same paths, comes first."""
        servers = [mirror, *self.servers] if mirror else self.servers
        return list(dict.fromkeys(f"{server.rstrip('/')}/{self.path}" for server in servers))


@dataclass(frozen=True)
class Source:
    """A corpus: its parts, and the command that takes a local copy instead of a download."""

    name: str
    parts: tuple[CorpusPart, ...]
    instead: str

    def choose(self, names: Sequence[str] = ()) -> list[CorpusPart]:
        """Select parts by name, each once; all if there are no names.

        raises   UserError for a name that the corpus doesn't have
        """
        known = {part.name: part for part in self.parts}
        for name in names:
            if name not in known:
                hint = did_you_mean(name, known)
                what = f"got {name!r}, expected parts of {self.name}: {', '.join(known)}{hint}"
                raise UserError(what, argument="parts")
        return [known[name] for name in dict.fromkeys(names or known)]


# bytes, utterances, and the sha256 from torchaudio.datasets.librispeech (likewise .yesno), whose
# import takes seconds
LIBRISPEECH = {
    "train-clean-100": (
        6_387_309_499,
        28_539,
        "d4ddd1d5a6ab303066f14971d768ee43278a5f2a0aa43dc716b0e64ecbbbf6e2",
    ),
    "train-clean-360": (
        23_049_477_885,
        104_014,
        "146a56496217e96c14334a160df97fffedd6e0a04e66b9c5af0d40be3c792ecf",
    ),
    "train-other-500": (
        30_593_501_606,
        148_688,
        "ddb22f27f96ec163645d53215559df6aa36515f26e01dd70798188350adcb6d2",
    ),
    "dev-clean": (
        337_926_286,
        2703,
        "76f87d090650617fca0cac8f88b9416e0ebf80350acb97b343a85fa903728ab3",
    ),
    "dev-other": (
        314_305_928,
        2864,
        "12661c48e8c3fe1de2c1caa4c3e135193bfb1811584f11f569dd12645aa84365",
    ),
    "test-clean": (
        346_663_984,
        2620,
        "39fde525e59672dc6d1551919b1478f724438a95aa55f874b576be21967e6c23",
    ),
    "test-other": (
        328_757_843,
        2939,
        "d09c181bba5cf717b3dee7d4d592af11a3ee3a09e08ae025c5506f6ebe961c29",
    ),
}
YESNO_SHA256 = "c3f49e0cca421f96b75b41640749167b52118f232498667ca7a5f9416aef8e73"
# md5: OpenSLR's own for RIRS_NOISES, else those that other toolkits check (AISHELL and MUSAN:
# PaddleSpeech,
# LibriSpeech's text: pydrobert-kaldi's author and others)
MD5 = {
    "librispeech-lm-norm.txt.gz": "c83c64c726a1aedfe65f80aa311de402",
    "librispeech-vocab.txt": "bf3cc7a50112831ed8b0afa40cae96a5",
    "data_aishell.tgz": "2f494334227864a8a8fec932999db9d8",
    "resource_aishell.tgz": "957d480a0fcac85fc18e550756f624e5",
    "musan.tar.gz": "0c472d4fc0c5141eca47ad1ffeb2a7df",
    "rirs_noises.zip": "e6f48e257286e05de56413b4779d8ffb",
}
AN4 = (  # NVIDIA's copy, made for its tutorials, comes first: it is available over https
    "https://dldata-public.s3.us-east-2.amazonaws.com",
    "https://www.speech.cs.cmu.edu/databases/an4",
    "http://www.speech.cs.cmu.edu/databases/an4",  # the last resort; altered files are found, as from any server
)


# of Multi30k's repository: bytes and SHA-256, computed of the commit in its address
MULTI30K = {
    "tok/train.lc.norm.tok.en": (
        1_837_696,
        "08925f8e0572bcd5a006702fc5fe20e2d77c6917d4eebd576fc20de6693c2119",
    ),
    "tok/train.lc.norm.tok.de": (
        2_150_008,
        "cb5a23529b65ec2061f1dc446192a9c37382b63cc75f81a0be59d34894b3a505",
    ),
    "tok/val.lc.norm.tok.en": (
        64_608,
        "46573ce391ae227f1c72f873392436a20ef18e0a6d518098cfbd70b77c8572ec",
    ),
    "tok/val.lc.norm.tok.de": (
        77_273,
        "97232bd273eceb7207f689527386a97e4be2616b18ada47576bdaf96c8ae1f00",
    ),
    "tok/test_2016_flickr.lc.norm.tok.en": (
        63_307,
        "5b7f32627cf99eced828311b955dae9800bb52bc8b91cf8b6526829e605b29d2",
    ),
    "tok/test_2016_flickr.lc.norm.tok.de": (
        71_917,
        "c6a33d39d48f9f510de147651316cd9d918e09ad0219df734a2f16b6baccacc4",
    ),
    "tok/test_2017_flickr.lc.norm.tok.en": (
        56_123,
        "c9d1dfd7a26add989382e534af235af9f0f658b2a30e7eb0efdaf142496ee54f",
    ),
    "tok/test_2017_flickr.lc.norm.tok.de": (
        65_228,
        "02067e4a9402786a4fcb8c1b6f4307e4a5073ced64800abead5273b54f5f31f6",
    ),
    "tok/test_2017_mscoco.lc.norm.tok.en": (
        25_380,
        "fe69ae004d71c42ead0301e70c57de5b1b6b5fb7f52210d42b22801e98e656f3",
    ),
    "tok/test_2017_mscoco.lc.norm.tok.de": (
        30_464,
        "e2825990b8a4e5289d2cdba801d57c187810bab9b4f5d87a30c35800a0d871b6",
    ),
    "raw/train.en.gz": (
        568_929,
        "d79cfa999dd4c51d2cb42499b6796d5a882c3a8a961923c25a898c90f8bbd56f",
    ),
    "raw/train.de.gz": (
        637_044,
        "726e39b2fa9eb9ffb6dc763fb35a179f80fae06ffc5d28b6ace5faa883de28a6",
    ),
    "raw/val.en.gz": (21_650, "14f7d25ddd868909a9213e361768460edcacdd6ab9d1e77b92560dc10c10dc28"),
    "raw/val.de.gz": (24_681, "f0cba2f995189cf5770f29a8a9a537a3ad3f51657ad873405082ff6863a5e75a"),
    "raw/test_2016_flickr.en.gz": (
        21_077,
        "611d361c6334bc7246101d48097c13cf5c4413c5befc793cc629934359d532d9",
    ),
    "raw/test_2016_flickr.de.gz": (
        22_890,
        "9204244e408ccb38d2a55cfcd344df15005fc42a07a6e55ca6c52b6ababb8cc8",
    ),
    "raw/test_2017_flickr.en.gz": (
        19_138,
        "76a444ee25172e72695cddb13ae4a3bda59430617be88e0bb46b60504f054074",
    ),
    "raw/test_2017_flickr.de.gz": (
        21_471,
        "a2c89666db00c495cd8513b9d708d5a3acc205d7de312ef2bf5fb7ebc1540aee",
    ),
    "raw/test_2017_mscoco.en.gz": (
        8_844,
        "aab300bfb4427697987e02cd0aacd44bfe8aa50456231b6474c08038bbed2b58",
    ),
    "raw/test_2017_mscoco.de.gz": (
        10_230,
        "799e4854c25d601cb6cb6be29eabe5667734c61ace2f495e03e429031a0bc338",
    ),
}
MULTI30K_FILES = (
    "https://raw.githubusercontent.com/multi30k/dataset/a3d2e0d26b56f3846f66a952536ffed4e401d05a/data/task1",
)


def multi30k(path: str) -> CorpusPart:
    """Describe a file of Multi30k, which is read as it is."""
    (size, sha256), name = MULTI30K[path], path.partition("/")[2]
    return CorpusPart(name, MULTI30K_FILES, path, size, name, 0, digest=f"sha256:{sha256}")


def librispeech(name: str) -> CorpusPart:
    """Describe a subset of LibriSpeech, OpenSLR 12."""
    size, utterances, sha256 = LIBRISPEECH[name]
    path, target = f"12/{name}.tar.gz", f"LibriSpeech/{name}"
    unpacked, members = round(BLOCKS * size), round(BESIDE * utterances)
    return CorpusPart(name, OPENSLR, path, size, target, unpacked, members, f"sha256:{sha256}")


def openslr(
    name: str, path: str, size: int, target: str, unpacked: int = 0, members: int = 0, nested=""
) -> CorpusPart:
    """Describe another file of OpenSLR, whose md5 is known."""
    digest = f"md5:{MD5[path.rpartition('/')[2]]}"
    return CorpusPart(name, OPENSLR, path, size, target, unpacked, members, digest, nested=nested)


SOURCES = {
    "librispeech": Source(
        "librispeech",
        tuple(map(librispeech, LIBRISPEECH)),
        "recipes/librispeech/run.sh --corpus DIR",
    ),
    "librispeech-lm": Source(
        "librispeech-lm",
        (  # neither is unpacked; the text is read as it is
            openslr(
                "text", "11/librispeech-lm-norm.txt.gz", 1_510_000_000, "librispeech-lm-norm.txt.gz"
            ),
            openslr("vocabulary", "11/librispeech-vocab.txt", 1_800_000, "librispeech-vocab.txt"),
        ),
        "recipes/librispeech/run.sh --corpus DIR",
    ),
    "aishell": Source(
        "aishell",
        (  # one archive per speaker within the archive
            openslr(
                "data",
                "33/data_aishell.tgz",
                15_582_913_665,
                "data_aishell",
                21_000_000_000,
                145_000,
                "wav/*.tar.gz",
            ),
            openslr(
                "resource", "33/resource_aishell.tgz", 1_246_920, "resource_aishell", 5_000_000, 20
            ),
        ),
        "recipes/aishell/run.sh --corpus DIR",
    ),
    "an4": Source(
        "an4",
        (
            CorpusPart(
                "an4",
                AN4,
                "an4_sphere.tar.gz",
                64_300_000,
                "an4",
                100_000_000,
                1200,
                files="an4.sha256",
            ),
        ),
        "recipes/an4/run.sh DIR",
    ),
    "yesno": Source(
        "yesno",
        (
            CorpusPart(
                "yesno",
                OPENSLR,
                "1/waves_yesno.tar.gz",
                4_700_000,
                "waves_yesno",
                7_000_000,
                100,
                f"sha256:{YESNO_SHA256}",
            ),
        ),
        "recipes/yesno/run.sh DIR",
    ),
    "multi30k": Source("multi30k", tuple(map(multi30k, MULTI30K)), "recipes/multi30k/run.sh DIR"),
    "musan": Source(
        "musan",
        (openslr("musan", "17/musan.tar.gz", 11_086_114_085, "musan", 13_000_000_000, 2200),),
        "asr-prepare folder DIR OUT",
    ),
    "rirs": Source(
        "rirs",
        (
            openslr(
                "rirs", "28/rirs_noises.zip", 1_311_166_223, "RIRS_NOISES", 3_000_000_000, 62_000
            ),
        ),
        "asr-prepare folder DIR OUT",
    ),
}
