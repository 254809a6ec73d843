"""Write the environment's page, docs/environment.md, from its docstring, its spaces and its registration.

python scripts/make_environment_page.py [--check]
"""

import argparse
import inspect
import re
import sys
from pathlib import Path

import gymnasium as gym

import pacer_gym  # noqa: F401  # registers the environment
from pacer_gym.envs import PacerServeEnv
from pacer_gym.envs.spaces import ACTIONS, BUDGETS, MOST_PREFILL_TOKENS, OBSERVATION, ORDERS, action_space

ENV_ID = "PacerServe-v0"
PAGE = Path(__file__).parents[1] / "docs" / "environment.md"

# Of what is scaled; the entry itself is a share of it, or a multiple of what it is divided by.
UNITS = {
    "decodes": "requests",
    "decode_context": "tokens",
    "prefilling": "requests",
    "waiting": "requests",
    "prompt_tokens_left": "tokens",
    "urgent_tokens_left": "tokens",
    "longest_wait": "TTFT targets",
    "least_slack": "TTFT targets",
    "late_share": "share",
    "tightest_tpot_s": "0.1 s",
    "ttft_target_s": "s",
    "least_banked": "TPOT targets",
    "mean_banked": "TPOT targets",
    "behind_share": "share",
    "decode_step": "TPOT targets",
    "headroom_tokens": "tokens",
    "last_step": "TPOT targets",
    "last_prefill_tokens": "tokens",
    "slow_ratio": "ratio",
    "fast_ratio": "ratio",
    "arrival_rate_rps": "requests/s",
    "free_blocks": "share",
    "last_preempted": "requests",
    "progress": "share",
}

HEAD = """# {env_id}

<!-- written by scripts/make_environment_page.py; edit the docstring of PacerServeEnv instead -->

![An episode in which the machine is slowed between 30 s and 60 s](images/episode.gif)

| | |
|---|---|
| Action space | `{action}` |
| Observation space | `Box` of {size} `float32` |
| Import | `gymnasium.make("pacer_gym:{env_id}")`, or `import pacer_gym` and `gymnasium.make("{env_id}")` |
| Render modes | {modes}; {fps} frames/s |
| Longest episode | {limit} |
| Nondeterministic | {chance} |

"""

ACTION_HEAD = """Which it is the argument `action` says.  Prompts are served up to the budget, in the order:

| `action` | space | budget | order |
|---|---|---|---|
"""

TAIL = """
## For programs

`gymnasium.spec("{env_id}")` has what is registered, and `gymnasium.pprint_registry()` lists it. The prefix
`pacer_gym:` imports the package first, which worker processes need. `env.unwrapped.action_masks()` is the
mask as `MaskablePPO` takes it, and `env.unwrapped.view()` what a policy would be shown. Frames need the
extra `plot`.

Gymnasium's and Stable-Baselines3's environment checkers have nothing to say of any kind of action, render
mode or option, which `tests/envs/test_citizenship.py` holds. The one exception is `with_view=True`: a view
has nan for what has not happened, and Gymnasium's checker takes two nan for different.

The GIF is made by `scripts/make_gif.py`: each step takes the largest budget that the observation says fits.
"""


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page is stale")
    args = parser.parse_args(argv)
    text = page()
    if args.check:
        stale = not PAGE.exists() or PAGE.read_text(encoding="utf-8") != text
        if stale:
            print(f"{PAGE} is stale: run python scripts/make_environment_page.py", file=sys.stderr)
        return int(stale)
    PAGE.write_text(text, encoding="utf-8")
    print(f"{PAGE}: written")
    return 0


def page() -> str:
    """The whole page."""
    spec = gym.spec(ENV_ID)
    head = HEAD.format(
        env_id=ENV_ID,
        action=action_space(ACTIONS[0]),
        size=len(OBSERVATION),
        modes=", ".join(f"`{mode}`" for mode in PacerServeEnv.metadata["render_modes"]),
        fps=PacerServeEnv.metadata["render_fps"],
        limit="the horizon, in seconds of simulated time"
        if spec.max_episode_steps is None
        else f"{spec.max_episode_steps} steps",
        chance="yes"
        if spec.nondeterministic
        else "no; on a live vLLM yes, and its spec says so after a reset",
    )
    sections = sections_of(inspect.cleandoc(PacerServeEnv.__doc__ or ""))
    sections["Action Space"] = ACTION_HEAD + action_rows()
    sections["Observation Space"] = observation_text(sections["Observation Space"])
    sections["Arguments"] = argument_rows(sections["Arguments"])
    sections["Example"] = "```python\n" + re.sub(r"^>>> ", "", sections["Example"], flags=re.M) + "\n```"
    text = "\n\n".join(f"## {title}\n\n{body.strip()}" for title, body in sections.items())
    return head + text + "\n" + TAIL.format(env_id=ENV_ID)


def sections_of(docstring: str) -> dict[str, str]:
    """Text below each heading of a docstring in Gymnasium's format."""
    parts = re.split(r"^## (.+)\n", docstring, flags=re.MULTILINE)
    return {title: body.strip() for title, body in zip(parts[1::2], parts[2::2], strict=True)}


def action_rows() -> str:
    """A row for each kind of action."""
    budgets = ", ".join(map(str, BUDGETS))
    orders = ", ".join(f"{k} {name}" for k, name in enumerate(ORDERS))
    most = f"{MOST_PREFILL_TOKENS} ((a + 1) / 2)² tokens, rounded"
    told = {
        "budget": (f"index into {budgets} tokens", "deadline (Moore-Hodgson)"),
        "budget+order": ("the same, by the first entry", f"by the second entry: {orders}"),
        "continuous": (most, "deadline (Moore-Hodgson)"),
    }
    return "\n".join(f"| `{kind}` | `{action_space(kind)}` | {' | '.join(told[kind])} |" for kind in ACTIONS)


def observation_text(text: str) -> str:
    """The docstring's section, its table with a unit for each entry."""
    lines = text.splitlines()
    table = [k for k, line in enumerate(lines) if line.startswith("|")]
    before, after = lines[: table[0]], lines[table[-1] + 1 :]
    rows = ["| Num | Observation | Min | Max | Meaning and scaling | Unit |", "|---|---|---|---|---|---|"]
    rows += [
        f"| {k} | `{entry.name}` | {entry.low:g} | {entry.high:g} | {entry.scaling} | {UNITS[entry.name]} |"
        for k, entry in enumerate(OBSERVATION)
    ]
    return "\n".join([*before, *rows, *after])


def argument_rows(text: str) -> str:
    """A row for each argument of the constructor."""
    # What stands before the first argument is said of them all.
    intro = re.split(r"^\w+ : ", text, maxsplit=1, flags=re.MULTILINE)[0].strip()
    rows = ["| Argument | Type | Default | What |", "|---|---|---|---|"]
    for name, kind, told in re.findall(r"^(\w+) : (.+)\n((?:    .+\n?)*)", text + "\n", flags=re.MULTILINE):
        default = inspect.signature(PacerServeEnv).parameters[name].default
        shown = kind.split(", default=")[0].removesuffix(", optional").replace("|", "\\|")
        rows.append(f"| `{name}` | {shown} | `{default!r}` | {' '.join(told.split()) or 'As above.'} |")
    return "\n".join([*([intro, ""] if intro else []), *rows])


if __name__ == "__main__":
    sys.exit(main())
