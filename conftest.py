"""The examples of modules that are written around vLLM are collected only where it is installed."""

import importlib.util

AROUND_VLLM = ["bare_scheduler", "imposing", "scheduler"]

collect_ignore = (
    [] if importlib.util.find_spec("vllm") else [f"pacer_gym/live/{name}.py" for name in AROUND_VLLM]
)
