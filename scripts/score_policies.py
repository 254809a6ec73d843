"""Enter, score and verify every ranked policy of `policies/` and every agent of `baselines/`; make the board.

    python scripts/score_policies.py [--only NAME] [--track cpu] [--jobs -1] [--no-verify]

Runs the commands that anybody runs for an entry of their own: `pacer-gym submit`, `score`, `verify`, `board`.
What an entry already has is left alone, and finished runs are kept, so a killed call goes on where it stood.
An entry that is not on a track yet is put on it.  Fixed budgets and deadline order are entered twice: at
128 tokens, and tuned for each scenario on the seeds for development.
"""

import json
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from pacer_gym.leaderboard.entry_folder import RESULTS_FILE, SUBMISSION_FILE, VERIFIED_FILE, file_on
from pacer_gym.leaderboard.submission import load_submission
from pacer_gym.policy import is_privileged, load_policy, policy_names
from pacer_gym.workloads.scenarios import TRACKS

FOLDER = Path("leaderboard/submissions")
SOURCES = {
    "aimd": "Chiu & Jain, Computer Networks and ISDN Systems 17, 1989",
    "deadline_order": "Moore, Management Science 15, 1968",
    "fair_batching": "Lyu et al., arXiv 2510.14392",
    "fixed_budget": "Agrawal et al., Sarathi-Serve, OSDI 2024",
    "least_laxity": "Mok, 1983; Ascend MindIE",
    "p_pas": "Saemann, arXiv 2608.15171",
    "pacer": "Gibbs & Candes, NeurIPS 2021; Moore, Management Science 15, 1968",
    "qoserve": "arXiv 2503.22562; microsoft/sarathi-serve, branch niyama_asplos2026",
    "slos_serve": "Chen et al., arXiv 2504.08784",
    "sola": "Hong et al., MLSys 2025",
    "srpf": "Schrage, Operations Research 16, 1968",
    "vllm_default": "vllm-project/vllm, v1/core/sched/scheduler.py",
}
TUNED = ("fixed_budget", "deadline_order")
AGENTS = Path("baselines/agents")
AGENT_SOURCES = {
    "dqn": "Mnih et al., Nature 518, 2015; stable-baselines3",
    "hybrid": "Mania, Guy & Recht, NeurIPS 2018, on top of pacer",
    "maskable_ppo": "Huang & Ontanon, FLAIRS 2022; sb3-contrib",
    "ppo": "Schulman et al., arXiv 1707.06347; stable-baselines3",
}


def main(
    only: Annotated[list[str] | None, typer.Option(help="Entries to make; all by default.")] = None,
    track: Annotated[list[str] | None, typer.Option(help="Tracks to score on; all by default.")] = None,
    jobs: Annotated[int, typer.Option(help="Processes: -1 for one a core.")] = -1,
    verify: Annotated[bool, typer.Option(help="Whether to verify what was scored.")] = True,
) -> None:
    """Make the entries that are missing, each as far as it has to go."""
    wanted, tracks = entries(), track or list(TRACKS)
    for name in only or wanted:
        if name not in wanted:
            raise typer.BadParameter(f"no entry {name!r}; there are {', '.join(wanted)}")
        entry, folder = wanted[name], FOLDER / name
        if not (folder / SUBMISSION_FILE).exists():
            on = [word for one in tracks for word in ("--track", one)]
            command("submit", entry.policy, "--name", name, "--author", "PacerGym", *on, *entry.submit)
        enter(folder, tracks)
        for one in tracks:
            if not (folder / file_on(RESULTS_FILE, one)).exists():
                command("score", "--submission", name, "--track", one, "--jobs", str(jobs), *entry.score)
            if verify and not (folder / file_on(VERIFIED_FILE, one)).exists():
                command("verify", name, "--track", one, "--jobs", str(jobs))
    command("board")


def enter(folder: Path, tracks: list[str]) -> None:
    """Put an entry on the tracks that it is not on yet."""
    on = load_submission(folder).tracks
    listed = [track for track in TRACKS if track in {*on, *tracks}]
    if tuple(listed) != on:
        path = folder / SUBMISSION_FILE
        told = ", ".join(f'"{track}"' for track in listed)
        text = re.sub(r"(?m)^track = .*$", f"track = [{told}]", path.read_text(encoding="utf-8"), count=1)
        path.write_text(text, encoding="utf-8")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What an entry is made of: its policy, and what `submit` and `score` are told besides."""

    policy: str
    submit: tuple[str, ...] = ()
    score: tuple[str, ...] = ()


def entries() -> dict[str, Entry]:
    """All entries, by name."""
    ranked = [name for name in policy_names() if not is_privileged(load_policy(name))]
    ranked.sort(key=lambda name: (name != "pacer", name))
    found = {}
    for name in ranked:
        source = ("--source", SOURCES[name]) if name in SOURCES else ()
        found[dashed(name)] = Entry(policy=name, submit=source)
    for name in TUNED:
        told = "--tuned", "budget_tokens", "--source", SOURCES[name]
        found[f"{dashed(name)}-tuned"] = Entry(policy=name, submit=told, score=("--tune", "budget_tokens"))
    for folder in sorted(AGENTS.iterdir()):
        found[dashed(folder.name)] = agent(folder)
    return found


def agent(folder: Path) -> Entry:
    """A trained agent, with what its provenance says of the training."""
    told = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    is_hybrid = folder.name == "hybrid"
    seeds = "episodes from seed 1,000,000 on; settings and which of three trainings, on two for development"
    if is_hybrid:
        seeds += ", start of the search with all scenarios in view"
    where = f"{told['provenance']['cpu']}, {told['provenance']['cores']} cores shared with other work"
    submit = (
        *("--family", "hybrid" if is_hybrid else "learned"),
        *("--weights", str(folder / "weights.npz")),
        *("--tuned", "weights", "--tuned-on", seeds),
        *("--tuning-range", "all weights; docs/rl.md tells which settings were tried"),
        *("--tuning-cost", f"{told['train_s']:.0f} s for this training; {where}"),
        *("--source", AGENT_SOURCES[folder.name]),
    )
    return Entry(policy=str(folder / "policy.py"), submit=submit)


def dashed(name: str) -> str:
    """Name of an entry."""
    return name.replace("_", "-")


def command(*arguments: str) -> None:
    """Run `pacer-gym`; stop where it fails."""
    print("pacer-gym", " ".join(arguments), flush=True)
    done = subprocess.run([sys.executable, "-m", "pacer_gym", *arguments], check=False)
    if done.returncode != 0:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    typer.run(main)
