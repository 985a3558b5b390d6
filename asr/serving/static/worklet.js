// On the thread of the sound card: the microphone's samples → portions of 16-bit ones at 16 kHz.

import { Resampler } from "./resampler.js";

const RATE = 16000;
const PORTION = 1600; // samples, 0.1 s

class Capture extends AudioWorkletProcessor {
  constructor() {
    super();
    this.resampler = new Resampler(sampleRate, RATE);
    this.waiting = [];
    this.running = true;
    this.port.onmessage = () => this.end();
  }

  process([[samples]]) {
    if (samples) this.take(this.resampler.push(samples));
    return this.running;
  }

  take(results) {
    this.waiting.push(...results);
    while (this.waiting.length >= PORTION) this.send(this.waiting.splice(0, PORTION));
  }

  end() {
    this.take(this.resampler.flush());
    this.send(this.waiting.splice(0));
    this.port.postMessage(null); // nothing follows
    this.running = false;
  }

  send(portion) {
    const samples = Int16Array.from(portion, (x) => Math.max(-1, Math.min(1, x)) * 32767);
    this.port.postMessage(samples, [samples.buffer]);
  }
}

registerProcessor("capture", Capture);
