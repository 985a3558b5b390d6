"use strict";
// Texts come from strangers: they reach the page as text only (textContent), never as HTML.

const read = (id) => JSON.parse(document.getElementById(id).textContent);
const [{ utterances }, names] = [read("data"), read("names")];
const [search, sort, list, more, only, count] = ["search", "sort", "list", "more", "only", "count"]
  .map((id) => document.getElementById(id));
const STEP = 25; // utterances shown at a time
const UNSURE = 0.5; // confidence of a word below which it is marked
const LEAD = 0.05; // seconds to begin before a word
let chosen = null; // what a button of the tables asks for: {label, fits}
let matching = []; // utterances that are found, in order
let current = null; // the player that was used last

function make(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

// 0 stands for a hypothesis that equals its reference
const hypothesis = ([ref, hyp]) => (hyp === 0 ? ref : hyp);
const errors = (utterance, n = 0) => utterance.readings[n].errors;
const gap = (utterance) => errors(utterance, 1) - errors(utterance);
const share = ({ readings }) => Math.max(...readings.map((each) => each.errors / each.length));

const ORDERS = {
  worst: null, // the order of the data
  rate: (a, b) => share(b) - share(a),
  differ: (a, b) => Math.abs(gap(b)) - Math.abs(gap(a)),
  first: (a, b) => gap(b) - gap(a),
  second: (a, b) => gap(a) - gap(b),
  unsure: (a, b) => (a.readings[0].confidence ?? 2) - (b.readings[0].confidence ?? 2),
  order: (a, b) => a.order - b.order,
};

function words(utterance) {
  if (!utterance.words) {
    const texts = utterance.readings.flatMap(({ pairs }) =>
      [pairs.map((pair) => pair[0] ?? ""), pairs.map((pair) => hypothesis(pair) ?? "")]
        .map((row) => row.filter(Boolean).join(" ")));
    utterance.words = [utterance.id, utterance.speaker, ...texts].join("\n").toLowerCase();
  }
  return utterance.words;
}

function find() {
  const terms = search.value.toLowerCase().split(/\s+/).filter(Boolean);
  matching = utterances.filter((utterance) => (!chosen || chosen.fits(utterance))
    && terms.every((term) => words(utterance).includes(term)));
  if (ORDERS[sort.value]) matching.sort(ORDERS[sort.value]);
  only.hidden = !chosen;
  only.textContent = chosen ? `${chosen.label} ✕` : "";
  count.textContent = `${matching.length} of ${utterances.length} utterances`;
  list.replaceChildren();
  show();
}

function show() {
  const next = matching.slice(list.childElementCount, list.childElementCount + STEP);
  list.append(...next.map(card));
  more.hidden = list.childElementCount >= matching.length;
}

function card(utterance) {
  const made = make("article");
  const head = make("header");
  const facts = [utterance.speaker && `speaker ${utterance.speaker}`,
    utterance.seconds && `${utterance.seconds.toFixed(1)} s`].filter(Boolean);
  head.append(make("b", "", utterance.id), make("small", "", facts.join(" · ")));
  const player = utterance.sound ? audio(utterance) : null;
  if (player) head.append(player);
  made.append(head);
  utterance.readings.forEach((reading, n) => {
    const name = names.length > 1 ? `${names[n]}: ` : "";
    const plural = reading.errors === 1 ? "" : "s";
    const title = make("p", "name");
    if (name) title.append(make("i", `system${n}`));
    title.append(make("small", "", `${name}${reading.errors} error${plural} of ${reading.length}`));
    made.append(title, alignment(reading, utterance, player));
  });
  return made;
}

function audio(utterance) {
  const player = make("audio");
  const begin = utterance.begin;
  const part = begin || !utterance.sound.startsWith("data:");
  player.controls = true;
  player.preload = "none";
  player.src = utterance.sound + (part ? `#t=${begin},${begin + utterance.seconds}` : "");
  player.addEventListener("play", () => {
    if (current && current !== player) current.pause();
    current = player;
  });
  return player;
}

function alignment(reading, utterance, player) {
  const row = make("div", "pairs");
  const timed = []; // [second, element]
  let second = null; // a deleted word is heard after the word before it
  for (const pair of reading.pairs) {
    second = pair[2] ?? second;
    const playable = player && second !== null;
    const made = column(pair, playable ? "button" : "div");
    if (playable) {
      const at = utterance.begin + second;
      if (pair[2] !== undefined) timed.push([at, made]);
      made.addEventListener("click", () => play(player, Math.max(0, at - LEAD)));
    }
    row.append(made);
  }
  if (timed.length) player.addEventListener("timeupdate", () => mark(timed, player.currentTime));
  return row;
}

function column(pair, tag) {
  const [ref, hyp] = [pair[0], hypothesis(pair)];
  const made = make(tag, "pair");
  const kind = ref === null ? "ins" : hyp === null ? "del" : ref === hyp ? "" : "sub";
  const upper = make("span", kind === "del" ? kind : ref === null ? "none" : "", ref ?? "–");
  const lower = make("span", kind === "del" ? "none" : kind, hyp ?? "–");
  made.append(upper, lower);
  if (pair[3] != null) {
    made.title = `${pair[2].toFixed(2)} s, confidence ${pair[3].toFixed(2)}`;
    if (pair[3] < UNSURE) made.classList.add("unsure");
  }
  return made;
}

function play(player, at) {
  const go = () => {
    player.currentTime = at;
    player.play();
  };
  if (player.readyState) return go();
  player.addEventListener("loadedmetadata", go, { once: true });
  player.load();
}

function mark(timed, now) {
  let heard = null;
  for (const [at, made] of timed) {
    made.classList.remove("now");
    if (at <= now + LEAD) heard = made;
  }
  if (heard) heard.classList.add("now");
}

function choose(label, fits) {
  chosen = { label, fits };
  find();
  document.getElementById("utterances").scrollIntoView();
}

for (const button of document.querySelectorAll("button.edit")) {
  const [ref, hyp] = JSON.parse(button.dataset.edit);
  button.addEventListener("click", () => choose(button.textContent, ({ readings }) =>
    readings.some(({ pairs }) =>
      pairs.some((pair) => pair[0] === ref && hypothesis(pair) === hyp))));
}
for (const button of document.querySelectorAll("button[data-speaker]")) {
  const speaker = button.dataset.speaker;
  button.addEventListener("click", () => choose(speaker, (each) => each.speaker === speaker));
}
only.addEventListener("click", () => {
  chosen = null;
  find();
});
document.getElementById("controls").addEventListener("submit", (event) => event.preventDefault());
search.addEventListener("input", find);
sort.addEventListener("change", find);
more.addEventListener("click", show);
// page.html#search=WORDS opens with a search
const asked = new URLSearchParams(location.hash.slice(1)).get("search");
if (asked) search.value = asked;
find();
