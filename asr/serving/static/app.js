// The page: what its buttons do.

import { clock } from "./formats.js";
import { Live } from "./live.js";
import { Meter, level } from "./meter.js";
import { listen } from "./microphone.js";
import { Recording } from "./recording.js";
import * as server from "./server.js";
import { Take } from "./take.js";

const find = (id) => document.getElementById(id);
const [speak, state, notice, hotwords, model, drop] =
  ["speak", "state", "notice", "hotwords", "model", "drop"].map(find);
const meter = new Meter(find("meter"));
const IDLE = state.textContent;
const QUIET = 3; // seconds without any sound, after which a hint is due
let session = null; // of the microphone, while it is on
let uploads = Promise.resolve(); // one after the other

const settings = () => ({
  model: model.value,
  hotwords: hotwords.value.split("\n").map((line) => line.trim()).filter(Boolean),
});

const tell = (text) => (notice.textContent = text);
const announce = (text) => (find("announced").textContent = text);

// The microphone.

async function start() {
  const time = new Date().toLocaleTimeString([], { hour: "2-digit", minute: "2-digit" });
  const now = (session = { recording: new Recording(), heard: 0, failed: false });
  show("starting", "Asking for the microphone…");
  try {
    now.stop = await listen((samples) => take(now, samples), () => stop());
  } catch (error) {
    session = null;
    show("", IDLE);
    return tell(error.message);
  }
  tell("");
  now.take = new Take(`Recording, ${time}`);
  now.take.find(".close").hidden = true;
  connect(now);
  show("listening", "Listening… 0:00");
  announce("Listening");
}

function take(now, samples) {
  now.recording.append(samples);
  now.live?.pump();
  if (session !== now) return; // the last portion, after the end
  const { seconds } = now.recording;
  meter.push(samples);
  if (level(samples) > 0.1) now.heard = seconds;
  const quiet = seconds - now.heard > QUIET && !now.take?.transcript.segments.length;
  state.textContent = quiet ? "No sound comes in. Is the microphone on?" : `Listening… ${clock(seconds)}`;
}

// Send what is recorded while it grows. What fails here is transcribed as a file in the end.
function connect(now) {
  const { take } = now;
  now.live = new Live(now.recording, settings(), {
    partial: (event) => take.transcript.partial(event),
    final: (event) => take.transcript.final(event),
    waiting: (is) => take.progress(is ? "Connecting…" : ""),
    end: () => finish(now),
    failed: (error) => failed(now, error),
  });
}

async function failed(now, { code, message }) {
  if (code === "unauthorized") {
    if (await askForToken()) return connect(now);
    message = "The server needs a token.";
  }
  now.failed = true;
  const hint = code === "not_live" ? "This model transcribes whole recordings" : message.replace(/\.?$/, "");
  now.take.progress("");
  if (session === now) tell(`${hint}: the text comes when you stop.`);
  else finish(now);
}

async function stop() {
  const now = session;
  session = null;
  show("", IDLE);
  announce("Stopped");
  meter.clear();
  await now.stop();
  now.take.progress("Finishing…");
  if (now.failed) finish(now);
  else now.live.end();
}

function finish(now) {
  const { take, recording } = now;
  take.progress("");
  take.find(".close").hidden = false;
  const file = recording.file(`${take.title}.wav`);
  if (now.failed) {
    tell("");
    return upload(take, file);
  }
  take.player.load(file);
  take.finish(recording.seconds);
}

function show(kind, text) {
  document.body.dataset.state = kind;
  state.textContent = text;
  find("speak-label").textContent = kind ? "Stop" : "Speak";
  speak.disabled = kind === "starting";
}

speak.onclick = () => (session ? stop() : start());

// Files.

function add(files) {
  for (const file of files) {
    const take = new Take(file.name);
    take.progress("Waiting…");
    uploads = uploads.then(() => take.root.isConnected && upload(take, file));
  }
}

async function upload(take, file) {
  const cut = new AbortController();
  const progress = (share) => share < 1
    ? take.progress(`Sending… ${Math.floor(100 * share)} %`, share, () => cut.abort())
    : take.progress("Transcribing…", null, () => cut.abort());
  take.closed = () => cut.abort();
  take.fail("");
  progress(0);
  try {
    const { segments, duration } = await server.transcribe(file, settings(), progress, cut.signal);
    take.transcript.clear();
    segments.forEach((segment) => take.transcript.final(segment));
    take.player.load(file);
    take.finish(duration);
    announce(`${take.title} is transcribed`);
  } catch (error) {
    if (error.status === 401 && await askForToken()) return upload(take, file);
    const message = error.name === "AbortError" ? "Canceled." : error.message;
    take.fail(message, () => upload(take, file));
  } finally {
    take.progress("");
  }
}

find("choose").onclick = () => find("file").click();
find("file").onchange = ({ target }) => {
  add([...target.files]);
  target.value = "";
};

let depth = 0; // of the elements that a file is dragged over
const holdsFiles = (event) => event.dataTransfer?.types.includes("Files");
const dragged = (by) => {
  depth = Math.max(0, depth + by);
  drop.hidden = !depth;
};
addEventListener("dragenter", (event) => holdsFiles(event) && dragged(1));
addEventListener("dragleave", (event) => holdsFiles(event) && dragged(-1));
addEventListener("dragover", (event) => holdsFiles(event) && event.preventDefault());
addEventListener("drop", (event) => {
  if (!holdsFiles(event)) return;
  event.preventDefault();
  dragged(-depth);
  add([...event.dataTransfer.files]);
});

// Settings.

// Ask for a token, and tell whether one was given.
function askForToken() {
  const [dialog, field] = [find("token"), find("token-field")];
  if (server.token.get()) find("token-why").textContent = "That token was wrong.";
  field.value = dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.onclose = () => {
      if (dialog.returnValue === "given") server.token.set(field.value.trim());
      resolve(dialog.returnValue === "given");
    };
  });
}
find("token-cancel").onclick = () => find("token").close("");

function countHotwords() {
  const { length } = settings().hotwords;
  find("hotword-count").textContent = length || "";
}
hotwords.value = localStorage.getItem("hotwords") ?? "";
hotwords.oninput = () => {
  localStorage.setItem("hotwords", hotwords.value);
  countHotwords();
};
countHotwords();

async function fillModels() {
  try {
    const models = await server.models();
    model.append(...models.map(({ id }) => new Option(id)));
    find("models").hidden = models.length < 2;
  } catch (error) {
    if (error.status === 401 && await askForToken()) return fillModels();
    tell(error.status ? error.message : "The server can’t be reached.");
  }
}
fillModels();

addEventListener("beforeunload", (event) => session && event.preventDefault());
