// One recording on the page: its transcript, its player, and its files.

import { FORMATS, clock, save } from "./formats.js";
import { Player } from "./player.js";
import { Transcript } from "./transcript.js";

export class Take {
  constructor(title) {
    this.title = title;
    const root = document.getElementById("take").content.cloneNode(true).firstElementChild;
    const find = (selector) => root.querySelector(selector);
    Object.assign(this, { root, find, closed: () => {} });
    find("h2").textContent = title;
    this.player = new Player(find(".player"), (seconds) => this.transcript.follow(seconds));
    this.transcript = new Transcript(find(".transcript"), {
      seek: (seconds) => this.player.seek(seconds),
      toggle: () => this.player.toggle(),
    });
    find(".close").ariaLabel = `Remove ${title}`;
    find(".close").onclick = () => this.close();
    find(".copy").onclick = ({ target }) => this.copy(target);
    find(".copy").hidden = !navigator.clipboard; // pages without https have none
    for (const button of root.querySelectorAll(".save")) {
      button.onclick = () => this.save(button.dataset.format);
    }
    document.getElementById("takes").prepend(root);
  }

  // Tell how far the work is: a share from 0 to 1, or null if nobody knows; no text when it is done.
  progress(text, share = null, cancel = null) {
    const [bar, label, button] = this.find(".progress").children;
    this.find(".progress").hidden = !text;
    label.textContent = text;
    bar.ariaLabel = text;
    if (share === null) bar.removeAttribute("value");
    else bar.value = share;
    button.hidden = !cancel;
    button.onclick = cancel;
  }

  fail(message, again = null) {
    const place = this.find(".failure");
    place.hidden = !message;
    place.textContent = message;
    if (!again) return;
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Try again";
    button.onclick = again;
    place.append(" ", button);
  }

  // Its sound and its texts are complete.
  finish(seconds) {
    const { segments, words } = this.transcript;
    const count = words.length || this.transcript.text.split(/\s+/).filter(Boolean).length;
    this.find(".facts").textContent =
      `${seconds ? `${clock(seconds)} · ` : ""}${count} ${count === 1 ? "word" : "words"}`;
    this.find("footer").hidden = !segments.length;
    this.find(".key").hidden = !words.length;
    if (!segments.length) this.fail("No words were recognized.");
  }

  async copy(button) {
    await navigator.clipboard.writeText(this.transcript.text);
    button.textContent = "Copied";
    setTimeout(() => (button.textContent = "Copy"), 1500);
  }

  save(format) {
    const name = this.title.replace(/\.\w{1,5}$/, "").replace(/[^\p{L}\p{N}._ -]+/gu, "-");
    save(`${name}.${format}`, FORMATS[format](this.transcript.segments));
  }

  close() {
    this.player.unload();
    this.root.remove();
    this.closed();
  }
}
