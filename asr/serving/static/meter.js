// The level of the last seconds, as a row of bars.

const BAR = 3; // pixels, and as many between two
const STEP = 800; // samples of a bar: 20 a second
const FLOOR = -60; // dB that are nothing

// The level of samples, from 0 to 1.
export function level(samples) {
  const power = samples.reduce((sum, x) => sum + x * x, 0) / samples.length;
  const decibels = 10 * Math.log10(power / 32768 ** 2 + 1e-12);
  return Math.max(0, 1 - decibels / FLOOR);
}

export class Meter {
  constructor(canvas) {
    this.canvas = canvas;
    this.levels = [];
    new ResizeObserver(() => this.draw()).observe(canvas);
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.draw());
  }

  push(samples) {
    for (let at = 0; at < samples.length; at += STEP) {
      this.levels.push(level(samples.subarray(at, at + STEP)));
    }
    this.draw();
  }

  clear() {
    this.levels = [];
    this.draw();
  }

  draw() {
    const { canvas } = this;
    const { clientWidth: width, clientHeight: height } = canvas;
    const pen = canvas.getContext("2d");
    canvas.width = width * devicePixelRatio;
    canvas.height = height * devicePixelRatio;
    pen.scale(devicePixelRatio, devicePixelRatio);
    pen.fillStyle = getComputedStyle(canvas).color;
    const count = Math.floor(width / (2 * BAR));
    this.levels.splice(0, this.levels.length - count);
    for (let n = 0; n < count; n++) {
      const value = this.levels[n - count + this.levels.length] ?? 0;
      const tall = Math.max(BAR, value * height);
      pen.globalAlpha = value ? 1 : 0.25;
      pen.beginPath();
      pen.roundRect(2 * BAR * n, (height - tall) / 2, BAR, tall, BAR / 2);
      pen.fill();
    }
  }
}
