"""SpeechBrain's side of decode.py; see decoding.py. Runs in the environment that environments.sh makes.

As its LibriSpeech Transformer recipe does, but for two choices beside that of speechbrain_model.py:
CTC scores the decoder's best 15 labels instead of all 5000 (the recipe's way needs many times the
time and memory); neither temperature nor end-of-sequence threshold.
"""

from speechbrain.decoders import CTCScorer, S2STransformerBeamSearcher, ScorerBuilder
from torch import Tensor, nn

from scripts.bench import decoding, workload
from scripts.bench import speechbrain_model as parts
from scripts.bench.speechbrain_model import BLANK, BOS, EOS


class SpeechBrain:
    """Batches as they come. The last of 30 labels is taken off as if it were the end symbol."""

    labels = workload.STEPS - 1

    def __init__(self, args):
        assert args.precision == "fp32"
        self.steps = 0
        self.front, self.transformer = parts.front(), parts.transformer()
        ctc_out, out = parts.outputs()
        out.w.bias.data[EOS] = workload.NEVER
        ctc = ScorerBuilder(
            partial_scorers=[CTCScorer(ctc_out, BLANK, EOS)],
            weights={"ctc": workload.CTC_WEIGHT},
            scorer_beam_scale=workload.PRE_BEAM,
        )
        self.joint, self.attention = (self._searcher(out, scorer) for scorer in (ctc, None))
        for module in (self.front, self.transformer, ctc_out, self.joint, self.attention):
            module.to(args.device).eval()

    def _searcher(self, out: nn.Module, scorer: ScorerBuilder | None) -> S2STransformerBeamSearcher:
        searcher = S2STransformerBeamSearcher(
            modules=[self.transformer, out],
            bos_index=BOS,
            eos_index=EOS,
            min_decode_ratio=0.0,
            max_decode_ratio=1.0,  # set for each batch
            beam_size=workload.BEAM,
            using_eos_threshold=False,
            scorer=scorer,
        )
        forward_step = searcher.forward_step

        def counted(*args, **kwargs):
            self.steps += 1
            return forward_step(*args, **kwargs)

        searcher.forward_step = counted
        return searcher

    def encode(self, X: Tensor, X_lens: Tensor) -> tuple[Tensor, Tensor]:
        """X (B, T, F), X_lens (B,) → (B, T', D), relative lengths (B,)"""
        relative = X_lens / X_lens.max()
        return self.transformer.encode(self.front(X), relative), relative

    def search(self, encoded: tuple[Tensor, Tensor], joint: bool) -> list[int]:
        """Lengths of the best hypotheses."""
        H, relative = encoded
        searcher = self.joint if joint else self.attention
        searcher.max_decode_ratio = (workload.STEPS + 0.5) / H.size(1)
        hypotheses, *_ = searcher(H, relative)
        assert all(EOS not in hypothesis for hypothesis in hypotheses)
        return [len(hypothesis) for hypothesis in hypotheses]


if __name__ == "__main__":
    decoding.serve(SpeechBrain, "speechbrain", "numpy")
