// Samples at the rate of a device → samples at another: a low-pass and an interpolation in one filter.
//
// Each result is a sum of samples around its place, weighted by a sinc within a Blackman window. The
// sinc ends below half of the lower rate, so that nothing higher folds back into speech.

const CROSSINGS = 24; // of the sinc, on each side
const PASSED = 0.92; // of half of the lower rate

const divisor = (a, b) => (b ? divisor(b, a % b) : a);

export class Resampler {
  constructor(from, to) {
    const common = divisor(from, to);
    this.up = to / common; // places of results between two samples
    this.down = from / common; // such places from one result to the next
    const cutoff = (PASSED * Math.min(from, to)) / from; // of half of the device's rate
    this.half = Math.ceil(CROSSINGS / cutoff);
    this.filters = Array.from({ length: this.up }, (_, n) => this.filter(n / this.up, cutoff));
    this.samples = new Float32Array(this.half); // silence before the first
    this.place = 0; // of the next result, after the first `half` samples
  }

  // The weights of 2 · half samples around a place `late` of the way from one sample to the next.
  filter(late, cutoff) {
    const weights = Float64Array.from({ length: 2 * this.half }, (_, n) => {
      const distance = n + 1 - this.half - late;
      const x = Math.PI * cutoff * distance;
      const window = 0.5 + distance / (2 * this.half);
      const blackman = 0.42 - 0.5 * Math.cos(2 * Math.PI * window) + 0.08 * Math.cos(4 * Math.PI * window);
      return (x ? Math.sin(x) / x : 1) * blackman;
    });
    const sum = weights.reduce((a, b) => a + b);
    return weights.map((weight) => weight / sum);
  }

  // Take samples, and return the results that they complete.
  push(samples) {
    const held = new Float32Array(this.samples.length + samples.length);
    held.set(this.samples);
    held.set(samples, this.samples.length);
    const results = [];
    let first = Math.floor(this.place / this.up);
    while (first + 2 * this.half < held.length) {
      const filter = this.filters[this.place % this.up];
      let sum = 0;
      for (let n = 0; n < filter.length; n++) sum += filter[n] * held[first + n + 1];
      results.push(sum);
      this.place += this.down;
      first = Math.floor(this.place / this.up);
    }
    this.samples = held.slice(first);
    this.place -= first * this.up;
    return results;
  }

  // Return what is left, as if silence followed.
  flush() {
    return this.push(new Float32Array(this.half));
  }
}
