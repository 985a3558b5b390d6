"""The searchers of one model, by how they search."""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import fields

from asr.models.recognizer import Recognizer
from asr.transcription.options import SearchOptions
from asr.transcription.searcher import Searcher

MOST = 32  # searchers that are kept
ANEW = {"mode", "chunk", "lm"}  # options that a searcher can't be tuned to


class Searchers:
    """Searchers with different options; the least recently used ones are forgotten. Any thread may use them."""

    def __init__(self, recognizer: Recognizer, options: SearchOptions, precision: str):
        self.recognizer, self.options, self.precision = recognizer, options, precision
        first = Searcher(recognizer, options, precision)
        self.device = first.device
        self._known = OrderedDict({options: first})
        self._lock = threading.Lock()

    def find(self, options: SearchOptions) -> Searcher:
        """Find or make the searcher of some options."""
        with self._lock:
            if options not in self._known:
                self._known[options] = self._made(options)
            self._known.move_to_end(options)
            self._known.move_to_end(self.options)
            while len(self._known) > MOST:
                self._known.popitem(last=False)
            return self._known[options]

    def _made(self, options: SearchOptions) -> Searcher:
        given = {field.name: getattr(options, field.name) for field in fields(options)}
        changed = {k: value for k, value in given.items() if value != getattr(self.options, k)}
        if ANEW & changed.keys():
            return Searcher(self.recognizer, options, self.precision)
        return self._known[self.options].tuned(**changed)
