"""Context-free grammars of sentences: reading, expanding, and drawing sentences that feed the rare words."""

import re
from collections import Counter


def parse(text):
    """Read a grammar's text → {rule: [alternative, ...]}."""
    lines = re.sub(r"\n +", " ", text).strip().splitlines()
    rules = (line.split(" = ", 1) for line in lines if line)
    return {name: [x.strip() for x in alternatives.split(" | ")] for name, alternatives in rules}


def expand(rng, rules, text="{sentence}"):
    """Replace each {rule} of `text` by a random alternative until none is left."""
    while "{" in text:
        text = re.sub(r"\{(\w+)\}", lambda rule: rng.choice(rules[rule[1]]), text)
    return text


def draw(rng, count, taken, rules, transcript, acceptable, units=str.split):
    """Draw `count` sentences whose transcripts are different from each other and from all in `taken`.

    Of sixteen candidates, the one with the rarest unit so far is kept, which feeds the rare rules.

    rng:         random.Random
    taken:       set of transcripts, which the new ones join
    transcript:  sentence → its transcript
    acceptable:  (transcript, taken) → whether to keep it
    units:       transcript → its words or characters
    returns      list of sentences
    """
    seen, drawn = Counter(), []
    while len(drawn) < count:
        candidates = [
            s for s in (expand(rng, rules) for _ in range(16)) if acceptable(transcript(s), taken)
        ]
        if not candidates:
            continue
        best = min(candidates, key=lambda s: min(seen[unit] for unit in units(transcript(s))))
        drawn.append(best)
        taken.add(transcript(best))
        seen.update(units(transcript(best)))
    return drawn
