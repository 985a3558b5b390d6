"""A stand-in for the Hugging Face Hub: what its client calls to create, upload, commit, list and resolve."""

import base64
import hashlib
import json
import re
from http.server import BaseHTTPRequestHandler
from urllib.parse import unquote, urlsplit

from servers import Local

LFS = ".safetensors"
TOKEN = "hf_writer"


def digest(data, kind="sha256"):
    return hashlib.new(kind, data).hexdigest()


class Hub(Local):
    """Repositories: name → commit → path → content, the newest commit last.

    cut_upload, cut_download  bytes of the next upload and of the next weights sent, after which the
                              connection ends, once
    claims                    path → size that listings claim
    served                    path of each file asked for, and the byte from which on
    down                      True: it answers that it is out of service
    """

    def __init__(self):
        super().__init__(Calls)
        self.repositories, self.blobs, self.claims, self.served = {}, {}, {}, []
        self.cut_upload = self.cut_download = None
        self.down = False

    def commit(self, name, files):
        """Add a commit; return its SHA-1."""
        commits = self.repositories.setdefault(name, {})
        sha = digest(f"{name} {len(commits)}".encode(), "sha1")
        commits[sha] = dict(files)
        return sha

    def head(self, name):
        """The newest commit."""
        return list(self.repositories[name])[-1]

    def files(self, name, revision="main"):
        """The files of a commit; KeyError if there is none."""
        return self.repositories[name][self.head(name) if revision == "main" else revision]


class Calls(BaseHTTPRequestHandler):
    """Answers one request."""

    protocol_version = "HTTP/1.1"

    def answer(self, body=b"", status=200, cut=None, **headers):
        """Send a body, JSON unless it is bytes, or no more than `cut` bytes of it."""
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        headers = {"Content-Length": len(body), **headers}
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body[:cut])
            self.close_connection = cut is not None

    def error(self, status, code=""):
        self.answer({"error": code}, status, X_Error_Code=code, X_Error_Message=code)

    def body(self):
        """Read the request's body, or a part of it."""
        if self.headers["Transfer-Encoding"] == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers["Content-Length"] or 0))

    def do_POST(self):
        if self.headers["Authorization"] != f"Bearer {TOKEN}":
            self.body()
            return self.error(401)
        path = unquote(urlsplit(self.path).path)
        if path == "/api/repos/create":
            asked = json.loads(self.body())
            name = "/".join(filter(None, (asked.get("organization"), asked["name"])))
            name = name if "/" in name else f"me/{name}"
            if name in self.server.repositories:
                return self.answer({"url": f"{self.server.url}/{name}"}, 409)
            self.server.commit(name, {".gitattributes": b"*.safetensors filter=lfs\n"})
            return self.answer({"url": f"{self.server.url}/{name}"})
        if path == "/api/validate-yaml":
            self.body()
            return self.answer({"errors": [], "warnings": []})
        if path.endswith("/info/lfs/objects/batch"):
            return self.batch(json.loads(self.body()))
        if found := re.fullmatch("/api/models/(.+/.+)/preupload/.+", path):
            return self.preupload(json.loads(self.body()))
        if found := re.fullmatch("/api/models/(.+/.+)/commit/.+", path):
            return self.publish(found[1], map(json.loads, self.body().splitlines()))
        return self.error(404)

    def preupload(self, asked):
        """Say which files are uploaded apart."""
        modes = {True: "lfs", False: "regular"}
        self.answer(
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": modes[file["path"].endswith(LFS)],
                        "shouldIgnore": False,
                        "oid": None,
                    }
                    for file in asked["files"]
                ]
            }
        )

    def batch(self, asked):
        """Say where files go that aren't here."""
        objects = []
        for one in asked["objects"]:
            action = {"upload": {"href": f"{self.server.url}/lfs/{one['oid']}"}}
            known = one["oid"] in self.server.blobs
            objects.append({**one} if known else {**one, "actions": action})
        self.answer({"transfer": "basic", "objects": objects})

    def do_PUT(self):
        cut, self.server.cut_upload = self.server.cut_upload, None
        if cut is not None:
            self.rfile.read(cut)
            self.close_connection = True
            return self.connection.shutdown(2)
        data = self.body()
        oid = self.path.rpartition("/")[2]
        if digest(data) != oid:
            return self.error(400)
        self.server.blobs[oid] = data
        self.answer(ETag=f'"{oid}"')

    def publish(self, name, lines):
        """Make a commit of the lines of a request."""
        files = dict(self.server.files(name))
        for line in lines:
            value = line["value"]
            if line["key"] == "header" and value.get("parentCommit") != self.server.head(name):
                return self.error(412)
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.blobs[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        sha = self.server.commit(name, files)
        url = f"{self.server.url}/{name}/commit/{sha}"
        return self.answer({"commitUrl": url, "commitOid": sha, "success": True})

    def do_GET(self):
        if self.server.down:
            return self.error(503)
        path = unquote(urlsplit(self.path).path)
        found = re.fullmatch(
            "/api/models/([^/]+/[^/]+)(?:/(revision|tree)/([^/]+))?|/([^/]+/[^/]+)/resolve/([^/]+)/(.+)",
            path,
        )
        if not found:
            return self.error(404)
        about, what, revision, name, commit, file = found.groups()
        name, revision = about or name, revision or commit or "main"
        if name not in self.server.repositories:
            return self.error(404, "RepoNotFound")
        try:
            files = self.server.files(name, revision)
        except KeyError:
            return self.error(404, "RevisionNotFound")
        sha = self.server.head(name) if revision == "main" else revision
        if file:
            return self.resolve(files, file, sha)
        listed = [self.entry(path, data) for path, data in files.items()]
        if what == "tree":
            return self.answer(listed)
        siblings = [self.sibling(**entry) for entry in listed]
        return self.answer({"_id": "1", "id": name, "sha": sha, "siblings": siblings})

    do_HEAD = do_GET

    def entry(self, path, data):
        """A file in a listing."""
        size = self.server.claims.get(path, len(data))
        entry = {"type": "file", "path": path, "size": size, "oid": digest(data, "sha1")}
        lfs = {"oid": digest(data), "size": size, "pointerSize": 130}
        return {**entry, "lfs": lfs} if path.endswith(LFS) else entry

    def sibling(self, path, size, oid, lfs=None, **_):
        """The same in a description of the repository."""
        large = lfs and {"lfs": {"sha256": lfs["oid"], **lfs}}
        return {"rfilename": path, "size": size, "blobId": oid, **(large or {})}

    def resolve(self, files, path, sha):
        """Send a file, or its rest."""
        if path not in files:
            return self.error(404, "EntryNotFound")
        data = files[path]
        etag = digest(data) if path.endswith(LFS) else digest(data, "sha1")
        headers = {"ETag": f'"{etag}"', "X_Repo_Commit": sha, "Accept_Ranges": "bytes"}
        begin = re.fullmatch(r"bytes=(\d+)-.*", self.headers["Range"] or "")
        cut = None
        if self.command == "GET":
            self.server.served.append((path, int(begin[1]) if begin else 0))
            if path.endswith(LFS):
                cut, self.server.cut_download = self.server.cut_download, None
        if begin:
            span = f"bytes {begin[1]}-{len(data) - 1}/{len(data)}"
            return self.answer(data[int(begin[1]) :], 206, cut, Content_Range=span, **headers)
        return self.answer(data, 200, cut, **headers)

    def log_message(self, *_):
        """Say nothing."""
