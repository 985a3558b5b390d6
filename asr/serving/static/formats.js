// Transcripts as files.

const LINE = 42; // characters of a subtitle's line, of which a cue has two
const LONGEST = 7; // seconds of a cue

const two = (number) => String(Math.floor(number)).padStart(2, "0");

// 75.2 → 1:15
export function clock(seconds) {
  const [hours, minutes] = [Math.floor(seconds / 3600), Math.floor(seconds / 60) % 60];
  return hours ? `${hours}:${two(minutes)}:${two(seconds % 60)}` : `${minutes}:${two(seconds % 60)}`;
}

// 75.2 → 00:01:15.200
function stamp(seconds, point) {
  const ms = Math.round(1000 * seconds);
  const rest = String(ms % 1000).padStart(3, "0");
  return `${two(ms / 3600000)}:${two((ms / 60000) % 60)}:${two((ms / 1000) % 60)}${point}${rest}`;
}

// The cues of subtitles: words, as many as fit.
export function cues(segments) {
  return segments.flatMap(({ start, end, text, words }) => {
    if (!words.length) return [{ start, end, text }];
    const made = [];
    for (const word of words) {
      const cue = made.at(-1);
      const fits = cue && cue.text.length + word.text.length < 2 * LINE && word.end - cue.start <= LONGEST;
      if (fits) Object.assign(cue, { end: word.end, text: `${cue.text} ${word.text}` });
      else made.push({ start: word.start, end: word.end, text: word.text });
    }
    return made;
  });
}

// A text in two lines of like length, if it is too long for one.
function wrapped(text) {
  if (text.length <= LINE) return text;
  const spaces = [...text.matchAll(/ /g)].map(({ index }) => index);
  if (!spaces.length) return text;
  const far = (at) => Math.abs(at - text.length / 2);
  const best = spaces.reduce((a, b) => (far(b) < far(a) ? b : a));
  return `${text.slice(0, best)}\n${text.slice(best + 1)}`;
}

const blocks = (segments, point) => cues(segments)
  .map(({ start, end, text }, n) => `${n + 1}\n${stamp(start, point)} --> ${stamp(end, point)}\n${wrapped(text)}\n`);

const escaped = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
const safe = (segments) => segments.map((segment) => ({
  ...segment,
  text: escaped(segment.text),
  words: segment.words.map((word) => ({ ...word, text: escaped(word.text) })),
}));

const kept = ({ start, end, text, confidence, words }) => ({ start, end, text, confidence, words });

export const FORMATS = {
  txt: (segments) => segments.map(({ text }) => `${text}\n`).join(""),
  srt: (segments) => blocks(segments, ",").join("\n"),
  vtt: (segments) => ["WEBVTT\n", ...blocks(safe(segments), ".")].join("\n"),
  json: (segments) => JSON.stringify({
    text: segments.map(({ text }) => text).join(" "),
    segments: segments.map(kept),
  }, null, 2),
};

export function save(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/plain;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
