"""A vLLM server in a process of its own and vLLM's own client, for `table_serve.py` and the tests."""

import contextlib
import io
import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

START_S, STOP_S = 600.0, 60.0
_LOCAL = "127.0.0.1"


@dataclass(kw_only=True)
class Server:
    """A server that answers, or has answered.

    Attributes
    ----------
    process
        The one that was started.
    url
        Where it answers.
    log
        File with all that it has said.
    status
        Its exit status, once it has been stopped.
    """

    process: subprocess.Popen[bytes]
    url: str
    log: Path
    status: int | None = field(default=None, init=False)

    def get(self, path: str) -> str:
        """What it answers to a GET."""
        with urllib.request.urlopen(self.url + path, timeout=30.0) as answer:
            return str(answer.read().decode())

    def metrics(self) -> dict[str, float]:
        """Prometheus samples by name, summed over their labels."""
        from prometheus_client.parser import text_string_to_metric_families

        sums: dict[str, float] = {}
        for family in text_string_to_metric_families(self.get("/metrics")):
            for sample in family.samples:
                sums[sample.name] = sums.get(sample.name, 0.0) + sample.value
        return sums

    def stop(self) -> None:
        """Ask it to end, as a supervisor would, and wait."""
        self.process.send_signal(signal.SIGTERM)
        try:
            self.status = self.process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            # Its children hold the engine, and end with its group.
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            raise RuntimeError(f"the server did not end within {STOP_S:g} s:\n{self._last_words()}") from None

    def wait_until_it_answers(self) -> None:
        """Return once requests are taken; raise with the end of its log if that never comes."""
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if self.process.poll() is not None:
                raise RuntimeError(f"the server ended with {self.process.returncode}:\n{self._last_words()}")
            with contextlib.suppress(urllib.error.URLError, ConnectionError):
                self.get("/health")
                return
            time.sleep(0.2)
        raise RuntimeError(f"the server did not answer within {START_S:g} s:\n{self._last_words()}")

    def _last_words(self) -> str:
        return self.log.read_text(encoding="utf-8", errors="replace")[-3000:]


@contextmanager
def serving(words: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[Server]:
    """Start a server on a free port, give it once it answers, and stop it.

    Parameters
    ----------
    words
        Its command; the port is added.
    environment
        Set on top of this process's own.
    log
        File for all that it says.
    """
    port = _free_port()
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*words, "--host", _LOCAL, "--port", str(port)],
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    server = Server(process=process, url=f"http://{_LOCAL}:{port}", log=log)
    try:
        server.wait_until_it_answers()
        yield server
    finally:
        if process.poll() is None:
            server.stop()


def bench_serve(url: str, model: str, tokenizer: Path, *options: str) -> dict[str, Any]:
    """What ``vllm bench serve`` measures; in this process, since importing vLLM takes longer than many a run.

    Parameters
    ----------
    url, model
        Where the server answers, and as what.
    tokenizer
        Folder of its tokenizer.
    options
        Of the client, in its own words.
    """
    from vllm.benchmarks.serve import add_cli_args, main
    from vllm.utils.argparse_utils import FlexibleArgumentParser

    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    common = ("--base-url", url, "--model", model, "--tokenizer", str(tokenizer), "--disable-tqdm")
    with contextlib.redirect_stdout(io.StringIO()):  # its own table
        result: dict[str, Any] = main(parser.parse_args([*common, *options]))
    return result


def _free_port() -> int:
    with socket.socket() as taken:
        taken.bind((_LOCAL, 0))
        return int(taken.getsockname()[1])
