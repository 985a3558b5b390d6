// The server: its models, files to transcribe, and the token if it asks for one, which is kept for this tab.

export class Refused extends Error {
  constructor(message, status) {
    super(message);
    this.status = status;
  }
}

export const token = {
  get: () => sessionStorage.getItem("token") ?? "",
  set: (value) => sessionStorage.setItem("token", value),
};

const headers = () => (token.get() ? { Authorization: `Bearer ${token.get()}` } : {});

export async function models() {
  const answer = await fetch("v1/models", { headers: headers() });
  if (!answer.ok) throw refusal(answer.status, await answer.text());
  return (await answer.json()).data;
}

export const streamAddress = () => {
  const address = new URL("v1/stream", location.href);
  address.protocol = address.protocol.replace("http", "ws");
  return address;
};

// Transcribe a file; `progress` gets the share of it that has been sent. fetch doesn't tell that.
export function transcribe(file, { model, hotwords }, progress, signal) {
  const form = new FormData();
  form.append("file", file, file.name);
  if (model) form.append("model", model);
  form.append("response_format", "verbose_json");
  form.append("nbest", "5");
  for (const each of ["word", "segment"]) form.append("timestamp_granularities[]", each);
  for (const word of hotwords) form.append("keywords[]", word);
  return new Promise((resolve, reject) => {
    const request = new XMLHttpRequest();
    request.open("POST", "v1/audio/transcriptions");
    for (const [name, value] of Object.entries(headers())) request.setRequestHeader(name, value);
    request.upload.onprogress = ({ loaded, total }) => progress(loaded / total);
    request.upload.onload = () => progress(1);
    request.onload = () =>
      request.status === 200
        ? resolve(transcript(JSON.parse(request.responseText)))
        : reject(refusal(request.status, request.responseText));
    request.onerror = () => reject(new Refused("The server can’t be reached.", 0));
    request.onabort = () => reject(new DOMException("canceled", "AbortError"));
    signal.addEventListener("abort", () => request.abort());
    request.send(form);
  });
}

// An answer whose segments have their words.
function transcript({ segments = [], words = [], duration }) {
  const within = ({ start, end }) => words.filter((word) => word.start >= start && word.start < end);
  const spelled = (segment) => within(segment).map(({ word, ...rest }) => ({ ...rest, text: word }));
  return { duration, segments: segments.map((each) => ({ ...each, words: spelled(each) })) };
}

function refusal(status, body) {
  let message = `The server answered ${status}.`;
  try {
    message = JSON.parse(body).error.message;
  } catch {} // an answer of a proxy
  return new Refused(message, status);
}
