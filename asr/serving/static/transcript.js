// Texts on the page: words that light up and seek, shaded where they are uncertain, and other readings.
// Texts come from recognizers and strangers: they reach the page as text only, never as HTML.

import { clock } from "./formats.js";

const SURE = 0.8; // confidence from which a word isn't shaded
const LINGER = 0.25; // seconds that a word stays lit in a pause

export function make(tag, className = "", text = "") {
  const made = document.createElement(tag);
  made.className = className;
  made.textContent = text;
  return made;
}

export class Transcript {
  // seek(seconds): play from there; toggle(): play or pause
  constructor(root, { seek, toggle }) {
    Object.assign(this, { root, seek, toggle, segments: [], words: [], lit: -1 });
    this.unsaid = make("p", "partial"); // what is being spoken
    this.unsaid.ariaHidden = "true"; // a screen reader reads what is final
    this.unsaid.append(make("span", "stable"), make("span"));
    root.tabIndex = 0;
    root.addEventListener("click", (event) => this.clicked(event));
    root.addEventListener("keydown", (event) => this.pressed(event));
  }

  partial({ text, stable }) {
    const [sure, rest] = this.unsaid.children;
    sure.textContent = stable;
    rest.textContent = text.slice(stable.length);
    this.show(this.unsaid, true);
  }

  final(segment) {
    const live = this.unsaid.isConnected;
    this.unsaid.remove();
    if (!segment.text) return;
    this.segments.push(segment);
    const made = document.getElementById("segment").content.cloneNode(true).firstElementChild;
    const [time, said] = made.children; // a button, a paragraph
    time.textContent = clock(segment.start);
    time.ariaLabel = `Play from ${clock(segment.start)}`;
    time.onclick = () => this.seek(segment.start);
    said.append(...this.spelled(segment));
    const others = (segment.nbest ?? []).filter(({ text }) => text !== segment.text);
    if (others.length) said.append("\u00a0", readings(others));
    this.show(made, live);
  }

  clear() {
    this.root.replaceChildren();
    Object.assign(this, { segments: [], words: [], lit: -1 });
  }

  get text() {
    return this.segments.map(({ text }) => text).join("\n");
  }

  // Add an element; `follow` scrolls to it where the end of the page was in sight.
  show(element, follow) {
    if (!performance.getEntriesByName("first-word").length) performance.mark("first-word");
    const { scrollHeight, clientHeight } = document.documentElement;
    const atEnd = scrollY + clientHeight > scrollHeight - 80;
    this.root.append(element);
    if (follow && atEnd) scrollTo({ top: document.documentElement.scrollHeight });
  }

  // The words of a segment as elements, and what stands between them.
  spelled({ text, words }) {
    const parts = [];
    let at = 0;
    for (const word of words) {
      const begin = text.indexOf(word.text, at);
      if (begin < 0) continue;
      const element = make("span", "word", word.text);
      mark(element, word);
      parts.push(text.slice(at, begin), element);
      this.words.push({ ...word, element });
      at = begin + word.text.length;
    }
    return [...parts, text.slice(at)];
  }

  // Light up what is heard at a second.
  follow(seconds) {
    const next = this.words.findIndex(({ start }) => start > seconds);
    const last = (next < 0 ? this.words.length : next) - 1;
    const heard = last >= 0 && seconds < this.words[last].end + LINGER ? last : -1;
    if (heard === this.lit) return;
    this.words[this.lit]?.element.classList.remove("now");
    this.words[heard]?.element.classList.add("now");
    this.lit = heard;
  }

  clicked({ target }) {
    const word = this.words.find(({ element }) => element === target);
    if (word && getSelection().isCollapsed) this.seek(word.start);
  }

  pressed(event) {
    if (event.target !== this.root) return;
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (event.key === " ") this.toggle();
    else if (step && this.words.length) this.step(step);
    else return;
    event.preventDefault();
  }

  step(by) {
    const word = this.words[Math.max(0, Math.min(this.words.length - 1, this.lit + by))];
    this.seek(word.start);
    word.element.scrollIntoView({ block: "nearest" });
  }
}

function mark(element, { start, confidence }) {
  if (confidence == null) return;
  element.title = `${clock(start)}, ${Math.round(100 * confidence)} % sure`;
  if (confidence < SURE) {
    element.classList.add("doubtful");
    element.style.setProperty("--doubt", (1 - confidence / SURE).toFixed(2));
  }
}

// A button that shows, where it is pointed at or focused, how else a segment may read.
function readings(others) {
  const made = make("span", "readings");
  const list = make("ol");
  for (const { text, confidence } of others) {
    const line = make("li", "", text || "(nothing)");
    if (confidence != null) line.append(make("small", "", `${Math.round(100 * confidence)} %`));
    list.append(line);
  }
  const button = make("button", "quiet", "≈");
  button.type = "button";
  button.ariaLabel = `Other readings: ${others.length}`;
  made.append(button, list);
  return made;
}
