"""Record an episode of PacerServe-v0, played by a rule of one line, as the README's GIF.

python scripts/make_gif.py [--out docs/images/episode.gif]

The machine is 1.5 times slower during the middle third.  Needs the extras `plot` and `test` (Pillow).
"""

import argparse
import sys
from pathlib import Path

import gymnasium as gym
import numpy as np
from PIL import Image

import pacer_gym  # noqa: F401  # registers the environment
from pacer_gym.envs.spaces import BUDGETS, OBSERVATION

OUT = Path(__file__).parents[1] / "docs" / "images" / "episode.gif"
RATE_RPS, HORIZON_S, SEED = 4.6, 90.0, 4
FRAME_EVERY_S, FRAME_MS, LAST_FRAME_MS = 0.75, 80, 3000
COLORS = 64
HEADROOM = [entry.name for entry in OBSERVATION].index("headroom_tokens")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=OUT)
    args = parser.parse_args(argv)
    frames, attainment = play()
    save(frames, args.out)
    size = args.out.stat().st_size
    print(f"{args.out}: {len(frames)} frames, {size / 1e6:.2f} MB, attainment {100 * attainment:.1f} %")
    return 0


def play() -> tuple[list[np.ndarray], float]:
    """Frames of an episode, and what it came to."""
    env = gym.make(
        "PacerServe-v0",
        scenario="drift-step",
        rate_rps=RATE_RPS,
        horizon_s=HORIZON_S,
        render_mode="rgb_array",
    )
    observation, info = env.reset(seed=SEED)
    frames, over = [], False
    while not over:
        observation, _, terminated, truncated, info = env.step(what_fits(observation))
        over = terminated or truncated
        if over or info["now_s"] >= FRAME_EVERY_S * (len(frames) + 1):
            frames.append(env.render())
    env.close()
    return frames, info["attainment"]


def what_fits(observation: np.ndarray) -> int:
    """The largest budget that is predicted to fit under the TPOT target, as the observation says."""
    share = float(observation[HEADROOM])
    tokens = 128.0 * share / (1.0 - share)  # of k / (k + 128)
    return int(np.searchsorted(BUDGETS, tokens, side="right")) - 1


def save(frames: list[np.ndarray], out: Path) -> None:
    """Write frames with one palette for all, so that what does not move costs nothing."""
    palette = Image.fromarray(frames[-1]).quantize(COLORS, Image.Quantize.MAXCOVERAGE)
    pictures = [
        Image.fromarray(frame).quantize(palette=palette, dither=Image.Dither.NONE) for frame in frames
    ]
    durations = [FRAME_MS] * (len(pictures) - 1) + [LAST_FRAME_MS]
    pictures[0].save(
        out, save_all=True, append_images=pictures[1:], duration=durations, loop=0, optimize=True
    )


if __name__ == "__main__":
    sys.exit(main())
