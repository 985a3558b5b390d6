// A recording, sent to the server while it grows; its events come back. If the connection breaks, the
// stream goes on where its last segment ended.

import { RATE } from "./recording.js";
import { streamAddress, token } from "./server.js";

const TRIES = 6; // to connect again, in the course of half a minute
const AHEAD = 2 ** 18; // bytes that may wait in the socket

export class Live {
  // settings: {model, hotwords}
  // events: partial(event), final(event), waiting(bool), end(), failed({code, message})
  constructor(recording, settings, events) {
    Object.assign(this, { recording, settings, events });
    this.next = { segment: 0, time: 0 }; // of the next segment
    this.tries = 0;
    this.ending = this.done = this.ready = false;
    this.open();
  }

  open() {
    this.sent = Math.round(this.next.time * RATE);
    this.ended = false; // whether the end was sent
    const socket = (this.socket = new WebSocket(streamAddress()));
    socket.onopen = () => socket.send(JSON.stringify({
      type: "config", rate: RATE, nbest: 5, resume: this.next, token: token.get(),
      model: this.settings.model || null, hotwords: this.settings.hotwords,
    }));
    socket.onmessage = ({ data }) => this.handle(JSON.parse(data));
    socket.onclose = () => this.closed();
  }

  handle(event) {
    if (event.type === "ready") {
      this.ready = true;
      this.tries = 0;
      this.events.waiting(false);
      this.pump();
    } else if (event.type === "partial") {
      this.events.partial(event);
    } else if (event.type === "final") {
      this.next = { segment: event.number + 1, time: event.position };
      this.events.final(event);
    } else if (event.type === "end") {
      this.done = true;
      this.events.end();
    } else if (event.type === "error" && event.code !== "shutting_down") {
      this.done = true;
      this.events.failed(event);
    }
  }

  closed() {
    this.ready = false;
    clearTimeout(this.later);
    if (this.done) return;
    if (this.tries === TRIES) {
      this.done = true;
      this.events.failed({ code: "unreachable", message: "The server can’t be reached." });
      return;
    }
    this.events.waiting(true);
    this.again = setTimeout(() => this.open(), 500 * 2 ** this.tries++);
  }

  // Send what has been recorded, as far as the socket takes it.
  pump() {
    if (!this.ready || this.ended) return;
    if (this.socket.readyState !== WebSocket.OPEN) return; // it is closing: `closed` will open another
    while (this.sent < this.recording.length && this.socket.bufferedAmount < AHEAD) {
      const samples = this.recording.from(this.sent);
      this.socket.send(samples);
      this.sent += samples.length;
    }
    clearTimeout(this.later);
    if (this.sent < this.recording.length) {
      this.later = setTimeout(() => this.pump(), 50);
    } else if (this.ending) {
      this.ended = true;
      this.socket.send(JSON.stringify({ type: "end" }));
    }
  }

  // Let nothing follow; the last events will come, and then the end.
  end() {
    this.ending = true;
    this.pump();
  }

  // Want nothing more.
  close() {
    this.done = true;
    clearTimeout(this.again);
    this.socket.close();
  }
}
