"""The inside of ``sandbox``: run as a script by a bare Python with the standard library alone, never imported.

Reads one JSON object from standard input, makes namespaces, runs the program in them, and writes one JSON object.
"""

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import sys
import time

_NEWNS, _NEWUTS, _NEWIPC, _NEWUSER, _NEWPID, _NEWNET = 0x20000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000
_RDONLY, _NOSUID, _NODEV, _NOEXEC, _REMOUNT, _NOATIME, _NODIRATIME, _BIND, _REC, _PRIVATE, _RELATIME = (
    1, 2, 4, 8, 32, 1024, 2048, 4096, 16384, 1 << 18, 1 << 21,
)  # fmt: skip
_PDEATHSIG, _NO_NEW_PRIVS = 1, 38
_NOBODY = 65534
_libc = ctypes.CDLL(None, use_errno=True)


class _Words(ctypes.Structure):
    """The header of capset: its version and a process, 0 for this one."""

    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


def _call(name, *arguments):
    if getattr(_libc, name)(*arguments):
        code = ctypes.get_errno()
        raise OSError(code, f"{name}: {os.strerror(code)}")


def _mount(source, target, kind, flags, data=None):
    texts = (x.encode() if x is not None else None for x in (source, target, kind))
    _call("mount", *texts, ctypes.c_ulong(flags), data.encode() if data else None)


def _bind_read_only(path, root):
    """A folder or file of the system at the same place below ``root``."""
    target = root + path
    if os.path.isdir(path):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        open(target, "w").close()
    _mount(path, target, None, _BIND | _REC)
    held = os.statvfs(target).f_flag  # flags of the place it comes from may not be dropped
    kept = (held & (_NOSUID | _NODEV | _NOEXEC | _NOATIME | _NODIRATIME)) | (_RELATIME if held & 4096 else 0)
    if path.startswith("/dev/"):
        return  # a device that is only read and written as such
    _mount(None, target, None, _BIND | _REMOUNT | _RDONLY | kept)


def _new_root(asked):
    root = "/tmp"
    _mount(None, "/", None, _REC | _PRIVATE)
    system = [p for p in ("/usr", "/lib", "/lib64", "/bin", "/etc/ld.so.cache") if os.path.exists(p)]
    # Opened before anything is mounted over it: Python may live anywhere, below /tmp too.
    os.makedirs(root, exist_ok=True)
    held = os.open(asked["prefix"], os.O_PATH | os.O_DIRECTORY)
    _mount("tmpfs", root, "tmpfs", _NOSUID | _NODEV, f"size={4 * 2**20},mode=755")
    for path in system:
        if os.path.islink(path):
            os.symlink(os.readlink(path), root + path)
        else:
            _bind_read_only(path, root)
    for path in ("/dev/null", "/dev/zero", "/dev/urandom"):
        _bind_read_only(path, root)
    if not any(asked["prefix"].startswith(p + "/") or asked["prefix"] == p for p in system):
        target = root + asked["prefix"]
        os.makedirs(target, exist_ok=True)
        _mount(f"/proc/self/fd/{held}", target, None, _BIND | _REC)
        flags = os.statvfs(target).f_flag & (_NOSUID | _NODEV | _NOEXEC | _NOATIME)
        relatime = _RELATIME if os.statvfs(target).f_flag & 4096 else 0
        _mount(None, target, None, _BIND | _REMOUNT | _RDONLY | flags | relatime)
    os.close(held)
    os.makedirs(root + "/tmp", exist_ok=True)
    _mount("tmpfs", root + "/tmp", "tmpfs", _NOSUID | _NODEV, f"size={2 * asked['file_bytes']},mode=777")
    _mount(None, root, None, _BIND | _REMOUNT | _RDONLY | _NOSUID | _NODEV)
    os.chroot(root)
    os.chdir("/tmp")


def _limit(asked):
    for name, value in (
        ("CPU", asked["cpu_seconds"]),
        ("DATA", asked["memory_bytes"]),
        ("FSIZE", asked["file_bytes"]),
        ("NPROC", asked["processes"]),
        ("NOFILE", 64),
        ("CORE", 0),
        ("STACK", 64 * 2**20),
    ):
        number = getattr(resource, f"RLIMIT_{name}")
        hard = resource.getrlimit(number)[1]
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(number, (value, value))


def _program(asked, end):
    """The program itself, in a process of its own; it writes the word on ``end`` when it comes to its last line."""
    null = os.open("/dev/null", os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    if asked["isolated"] and asked["root"]:
        os.setgroups([])
        os.setresgid(1, 1, 1)
        os.setresuid(1, 1, 1)  # nobody outside: only then does the limit of processes hold
    if asked["isolated"]:  # whoever may mount and change roots may leave this one
        _call("capset", ctypes.byref(_Words(0x20080522, 0)), ctypes.byref((ctypes.c_uint32 * 6)()))
        _call("prctl", _NO_NEW_PRIVS, 1, 0, 0, 0)
    _limit(asked)
    space = {"__name__": "__main__", "__builtins__": __builtins__}
    try:
        exec(compile(asked["source"], "program", "exec"), space)
    except SystemExit as stop:
        os.write(end, f"reason:left with {stop.code!r}"[:300].encode())
        os._exit(1)
    except BaseException as error:
        os.write(end, f"reason:{type(error).__name__}: {error}"[:300].encode("utf-8", "replace"))
        os._exit(1)
    os.write(end, asked["word"].encode())
    os._exit(0)


def _supervise(asked):
    """Run the program as a child, end what outlives it, and say how it went."""
    read, write = os.pipe()
    began = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os.close(read)
        if not asked["isolated"]:
            os.setpgid(0, 0)
        _program(asked, write)
    os.close(write)
    told, reason = b"", ""
    while True:
        left = asked["wall_seconds"] - (time.monotonic() - began)
        ready = select.select([read], [], [], max(0.0, left))[0]
        if not ready:
            reason = "ran out of time"
            break
        some = os.read(read, 4096)
        told += some
        if not some or len(told) >= len(asked["word"]) or told.startswith(b"reason:"):
            break
    told = told if told.startswith(b"reason:") else told[: len(asked["word"])]  # a copy of it may say the word, too
    if not reason and not told:  # it closed the pipe without a word: how did it die?
        reason = "ran out of time"
        while time.monotonic() < began + asked["wall_seconds"]:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                signalled = os.WIFSIGNALED(status)
                reason = f"killed by signal {os.WTERMSIG(status)}" if signalled else "left before its end"
                break
            time.sleep(0.002)
    if told.startswith(b"reason:"):
        reason = told[7:].partition(b"reason:")[0].decode("utf-8", "replace")  # copies of it may fail as well
    word = told.decode("ascii", "replace") if not reason else ""
    if not asked["isolated"]:
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
    return {"word": word, "reason": reason}


def _isolated(asked):
    """Supervise as the first process of new namespaces: its end is the end of all in them."""
    asked["root"] = os.geteuid() == 0
    uid, gid = os.geteuid(), os.getegid()
    ready_read, ready_write = os.pipe()
    mapped_read, mapped_write = os.pipe()
    answer_read, answer_write = os.pipe()
    pid = os.fork()
    if pid == 0:
        _libc.prctl(_PDEATHSIG, signal.SIGKILL)
        os.close(mapped_write)
        try:
            _call("unshare", _NEWUSER | _NEWNS | _NEWPID | _NEWNET | _NEWIPC | _NEWUTS)
            os.write(ready_write, b"1")
            os.read(mapped_read, 1)
            first = os.fork()
            if first == 0:
                _libc.prctl(_PDEATHSIG, signal.SIGKILL)
                try:
                    _new_root(asked)
                    told = _supervise(asked)
                except OSError as error:
                    told = {"word": "", "reason": f"sandbox: {error}"}
                os.write(answer_write, json.dumps(told).encode())
                os._exit(0)
            os.waitpid(first, 0)
        except OSError as error:
            os.write(answer_write, json.dumps({"word": "", "reason": f"sandbox: {error}"}).encode())
        os._exit(0)
    os.close(ready_write)
    os.close(answer_write)
    if os.read(ready_read, 1):
        try:
            groups = f"/proc/{pid}/setgroups"
            if not asked["root"]:
                with open(groups, "w") as file:
                    file.write("deny")
            nobody = f"\n1 {_NOBODY} 1" if asked["root"] else ""
            for kind, number in (("uid", uid), ("gid", gid)):
                with open(f"/proc/{pid}/{kind}_map", "w") as file:
                    file.write(f"0 {number} 1{nobody}")
            os.write(mapped_write, b"1")
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            return {"word": "", "reason": f"sandbox: {error}"}
    told = b""
    while some := os.read(answer_read, 4096):
        told += some
    os.waitpid(pid, 0)
    return json.loads(told) if told else {"word": "", "reason": "its first process was killed"}


def main():
    asked = json.loads(sys.stdin.buffer.read())
    told = _isolated(asked) if asked["isolated"] else _supervise(asked)
    sys.stdout.write(json.dumps(told))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
