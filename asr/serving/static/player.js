// A player of one sound: a button, a slider, and how far it is.

import { clock } from "./formats.js";

let playing = null; // only one at a time

export class Player {
  // moved(seconds): is called as it plays, and when one seeks
  constructor(root, moved) {
    Object.assign(this, { root, moved, audio: new Audio() });
    [this.button, this.slider, this.time] = root.children;
    this.button.onclick = () => this.toggle();
    this.slider.oninput = () => (this.audio.currentTime = Number(this.slider.value));
    this.audio.onloadedmetadata = () => {
      this.slider.max = this.audio.duration;
      root.hidden = false;
      this.show();
    };
    this.audio.onseeked = () => this.show();
    this.audio.onplay = this.audio.onpause = () => this.changed();
  }

  load(file) {
    this.audio.src = URL.createObjectURL(file);
  }

  unload() {
    this.audio.pause();
    URL.revokeObjectURL(this.audio.src);
  }

  toggle() {
    if (this.audio.paused) this.play();
    else this.audio.pause();
  }

  play() {
    this.audio.play().catch((error) => {
      if (error.name !== "AbortError") throw error; // a pause came before the first sound
    });
  }

  // Play from a second.
  seek(seconds) {
    if (!this.audio.src) return;
    this.audio.currentTime = seconds;
    this.play();
  }

  changed() {
    const { paused } = this.audio;
    this.root.classList.toggle("playing", !paused);
    this.button.ariaLabel = paused ? "Play" : "Pause";
    if (paused) return;
    if (playing !== this) playing?.audio.pause();
    playing = this;
    this.step();
  }

  step() {
    this.show();
    if (!this.audio.paused) requestAnimationFrame(() => this.step());
  }

  show() {
    const { currentTime, duration } = this.audio;
    this.slider.value = currentTime;
    this.slider.style.setProperty("--share", duration ? currentTime / duration : 0);
    this.slider.ariaValueText = `${clock(currentTime)} of ${clock(duration)}`;
    this.time.textContent = `${clock(currentTime)} / ${clock(duration)}`;
    this.moved(currentTime);
  }
}
