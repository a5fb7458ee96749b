"""Jupyter kernels of this interpreter, forked from a process that has imported what notebooks need
and read their Records.

Half of what a page costs is to import the same modules and to read the same Records. One process
does both once and forks itself for each notebook, as a provisioner of `jupyter_client` starts them.
"""

import contextlib
import gc
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable, Iterator
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

import nbformat
import psutil
from jupyter_client.provisioning import KernelProvisionerFactory, LocalProvisioner

from multigpu.analysis.read import read_study, records_of
from multigpu.machine.process import end_with_parent

FORKED = "multigpu-forked"
KERNEL = """from multigpu.machine.process import end_with_parent
end_with_parent()
from ipykernel.kernelapp import launch_new_instance
launch_new_instance()
"""  # it ends with whoever executes the notebook, also if that is killed


class ForkedKernel:
    """A kernel's process, whose parent is the server: what `LocalProvisioner` asks of a `Popen`."""

    stdin = stdout = stderr = None

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.process = psutil.Process(pid)

    def poll(self) -> int | None:
        """Return None while it runs, and 0 once it has ended, however it did."""
        return None if self.process.is_running() else 0

    def wait(self) -> int:
        """Wait until it has ended."""
        self.process.wait()
        return 0

    def send_signal(self, number: int) -> None:
        """Send it a signal, unless it has ended."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self.process.send_signal(number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class KernelServer:
    """A process that has imported `modules`, and read the Records in a folder ("": none), and forks
    itself for every kernel.
    """

    def __init__(self, modules: Iterable[str], records: str, environment: dict[str, str]) -> None:
        command = [sys.executable, "-m", __name__, records, *modules]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        self.turn = threading.Lock()

    def start(self, connection_file: str, folder: str, environment: dict[str, str]) -> ForkedKernel:
        """Return the process of a new kernel; a RuntimeError says that the server has ended."""
        order = {"file": connection_file, "folder": folder, "environment": environment}
        assert self.process.stdin and self.process.stdout
        with self.turn:
            with contextlib.suppress(BrokenPipeError):
                print(json.dumps(order), file=self.process.stdin, flush=True)
            answer = self.process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that starts kernels ended ({self.process.wait()})")
        return ForkedKernel(int(answer))

    def close(self) -> None:
        """End the server. Kernels that still run end with it."""
        self.process.kill()
        self.process.communicate()


class ForkedProvisioner(LocalProvisioner):
    """Starts a kernel through the server of the moment."""

    server: KernelServer

    async def launch_kernel(self, cmd: list[str], **kwargs: Any) -> Any:
        self.cwd = str(kwargs.get("cwd") or Path.cwd())
        manager: Any = self.parent
        environment = kwargs.get("env") or dict(os.environ)
        kernel: Any = self.server.start(manager.connection_file, self.cwd, environment)
        self.process, self.pid, self.pgid = kernel, kernel.pid, kernel.pid
        return self.connection_info


def imported(notebooks: Iterable[Path]) -> list[str]:
    """Return the modules that two of these notebooks or more import, most wanted first."""
    wanted = Counter[str]()
    for path in notebooks:
        cells = nbformat.read(path, as_version=4).cells
        code = "\n".join(cell.source for cell in cells if cell.cell_type == "code")
        wanted.update(set(re.findall(r"^(?:from|import) +([\w.]+)", code, re.MULTILINE)))
    return [name for name, times in wanted.most_common() if times > 1]


@contextlib.contextmanager
def this_interpreter(notebooks: Iterable[Path] = (), records: str = "") -> Iterator[None]:
    """Make the kernel `python3` mean this interpreter with this package, whatever kernels the user
    or the machine has. Kernels for several notebooks are forked from one process.
    records: the folder of Records, as `read_study` takes it, that the notebooks read.
    """
    # absolute, since a relative PYTHONPATH means something else in the notebook's folder
    source = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(filter(None, [source, os.environ.get("PYTHONPATH")]))
    content: dict[str, Any] = {
        "argv": [sys.executable, "-c", KERNEL, "--log-level=CRITICAL", "-f", "{connection_file}"],
        "display_name": "Python 3",
        "language": "python",
        "env": {"PYTHONPATH": path},
    }
    with contextlib.ExitStack() as stack:
        if modules := imported(notebooks):
            server = KernelServer(modules, records, {**os.environ, "PYTHONPATH": path})
            stack.callback(server.close)
            ForkedProvisioner.server = server
            group = KernelProvisionerFactory.GROUP_NAME
            KernelProvisionerFactory.instance().provisioners[FORKED] = EntryPoint(
                FORKED, f"{__name__}:{ForkedProvisioner.__name__}", group
            )
            content["metadata"] = {"kernel_provisioner": {"provisioner_name": FORKED}}
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="multigpu-kernel-"))
        spec = Path(folder, "kernels", "python3", "kernel.json")
        spec.parent.mkdir(parents=True)
        spec.write_text(json.dumps(content), encoding="utf-8")
        before = os.environ.get("JUPYTER_PATH")
        os.environ["JUPYTER_PATH"] = os.pathsep.join(filter(None, [folder, before]))
        try:
            yield
        finally:
            del os.environ["JUPYTER_PATH"]
            os.environ |= {"JUPYTER_PATH": before} if before else {}


def become_kernel(order: dict[str, Any]) -> None:
    """Turn this process, a fork of the server, into a kernel, until it is shut down."""
    os.setsid()
    end_with_parent()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_RDWR)
    os.dup2(null, 0)
    os.dup2(2, 1)  # the server's own output is a pipe that only it may write to
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environment"])
    from ipykernel.kernelapp import launch_new_instance

    launch_new_instance(argv=["--log-level=CRITICAL", "-f", order["file"]])
    sys.exit()


def serve(records: str, *modules: str) -> None:
    """Import these modules and read the Records in a folder; then fork a kernel for every line of
    standard input, an order as JSON, and print its process.
    """
    end_with_parent()
    for name in ("ipykernel.kernelapp", *modules):
        with contextlib.suppress(ImportError):  # the notebook that needs it says so
            importlib.import_module(name)
    if records:
        with contextlib.suppress(Exception):  # the notebook that reads them says why it cannot
            records_of(read_study(records).runs)
    gc.freeze()  # a fork that collected garbage would copy all that it was given
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # none of them is waited for
    while line := sys.stdin.readline():
        pid = os.fork()
        if not pid:
            become_kernel(json.loads(line))
        print(pid, flush=True)


if __name__ == "__main__":
    serve(*sys.argv[1:])
