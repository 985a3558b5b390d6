// What was spoken: 16-bit samples at 16 kHz, kept to be sent again, played and saved.

export const RATE = 16000;

export class Recording {
  portions = [];
  length = 0; // samples

  get seconds() {
    return this.length / RATE;
  }

  append(portion) {
    this.portions.push({ first: this.length, samples: portion });
    this.length += portion.length;
  }

  // The samples from a place on, up to the end of their portion.
  from(place) {
    let [low, high] = [0, this.portions.length - 1];
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.portions[middle].first <= place) low = middle;
      else high = middle - 1;
    }
    const { first, samples } = this.portions[low];
    return samples.subarray(place - first);
  }

  // A WAV file.
  file(name) {
    const header = new DataView(new ArrayBuffer(44));
    const size = 2 * this.length;
    const put = (at, text) => [...text].forEach((c, n) => header.setUint8(at + n, c.charCodeAt(0)));
    put(0, "RIFF");
    header.setUint32(4, 36 + size, true);
    put(8, "WAVEfmt ");
    header.setUint32(16, 16, true); // bytes of what follows
    header.setUint16(20, 1, true); // PCM
    header.setUint16(22, 1, true); // one channel
    header.setUint32(24, RATE, true);
    header.setUint32(28, 2 * RATE, true);
    header.setUint16(32, 2, true);
    header.setUint16(34, 16, true);
    put(36, "data");
    header.setUint32(40, size, true);
    return new File([header, ...this.portions.map(({ samples }) => samples)], name, { type: "audio/wav" });
  }
}
