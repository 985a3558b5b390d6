// The microphone: permission, the worklet that resamples it, and its end.

const CONSTRAINTS = { channelCount: 1, echoCancellation: false, noiseSuppression: false, autoGainControl: true };

const REASONS = {
  NotAllowedError: "The browser doesn’t let this page use the microphone. Allow it in the address bar, then try again.",
  NotFoundError: "No microphone was found.",
  NotReadableError: "Another program is using the microphone.",
};

// Give `take` portions of 16-bit samples at 16 kHz; `lost` is called if the device goes away.
// Returns a function that ends it, after the last portion.
export async function listen(take, lost) {
  if (!navigator.mediaDevices) {
    throw new Error("Browsers allow the microphone only on https pages and localhost. Start the server with --certfile and --keyfile.");
  }
  const media = await navigator.mediaDevices.getUserMedia({ audio: CONSTRAINTS }).catch((error) => {
    throw new Error(REASONS[error.name] ?? `The microphone can’t be used: ${error.message}`);
  });
  const context = new AudioContext();
  try {
    await context.audioWorklet.addModule(new URL("worklet.js", import.meta.url));
  } catch (error) {
    close(media, context);
    throw error;
  }
  const capture = new AudioWorkletNode(context, "capture", { channelCount: 1, channelCountMode: "explicit" });
  let ended;
  const end = new Promise((resolve) => (ended = resolve));
  capture.port.onmessage = ({ data }) => (data ? take(data) : ended());
  context.createMediaStreamSource(media).connect(capture).connect(context.destination); // which stays silent
  media.getAudioTracks()[0].onended = lost;
  await context.resume();
  return async () => {
    capture.port.postMessage("end");
    await Promise.race([end, new Promise((resolve) => setTimeout(resolve, 500))]); // a lost device is silent
    close(media, context);
  };
}

function close(media, context) {
  for (const track of media.getTracks()) track.stop();
  context.close();
}
