"""The one code base works from a wheel, an editable install, a checkout and a dropped-in folder."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml

import memtier_plugin

ROOT = Path(__file__).parents[1]
NOT_SHIPPED = shutil.ignore_patterns(
    "memtier-demo", ".*", "__pycache__", "build", "dist", "*.egg-info"
)
# Each project of the repository, and what it ships.
PROJECTS = [
    (".", ("memtier_plugin", "hooks", "daemon", "config")),
    ("bench", ("memtier_bench",)),
    ("papers", ("memtier_papers",)),
]
PARTS = "import memtier_plugin.hooks, memtier_plugin.daemon, memtier_plugin.config as config, sys\n"
# What every way of installing must give: the parts, their data, and no top-level packages.
WORKS = PARTS + (
    "from importlib.resources import files\n"
    "assert 'language' in (files(config) / 'memtier.yaml').read_text()\n"
    "from memtier_plugin.core.settings import load as settings\n"
    "assert not {'hooks', 'daemon', 'config'} & set(sys.modules)\n"
    "print(memtier_plugin.__version__)\n"
)
# And an installation, the distribution's own name.
NAMED = "import memtier; assert memtier.MemTier is memtier_plugin.MemTier\n"


def run(*command: str | Path, cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command to its end and return its output; the test fails with it if it fails."""
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=os.environ | (env or {}),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout}"
    return done.stdout


def checkout(folder: Path) -> Path:
    """Copy what a clone has into a folder, and return it."""
    return Path(shutil.copytree(ROOT, folder, ignore=NOT_SHIPPED))


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build sdist, and the wheel from the sdist, once; return the folder that holds them."""
    source = checkout(tmp_path_factory.mktemp("build") / "source")
    run(sys.executable, "-m", "build", "--outdir", source / "dist", cwd=source)
    return source / "dist"


@pytest.fixture
def empty(tmp_path: Path) -> Path:
    """Make a virtual environment that sees this one's third parties, and return its python."""
    venv.create(tmp_path / "an environment", with_pip=True)
    python = tmp_path / "an environment" / "bin" / "python"
    where = run(
        python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=tmp_path
    )
    # Not ours, if this one has it: an editable install would answer for what is tested.
    theirs = Path(yaml.__file__).parents[1]
    (Path(where.strip()) / "third_parties.pth").write_text(f"{theirs}\n")
    return python


def add_extra(python: Path, folder: Path) -> str:
    """Run the command that the installed MemTier prints for an extra; return what pip reports."""
    code = (
        "from memtier_plugin.core.installation import install_command\n"
        "print(install_command('memtier[tui]'))\n"
    )
    command = run(python, "-c", code, cwd=folder).strip()
    options = ["--no-deps", "--force-reinstall", "--report", "-"]
    shown = run("sh", "-c", f"{command} {' '.join(options)} --quiet 2>/dev/null", cwd=folder)
    [installed] = json.loads(shown)["install"]
    assert installed["requested_extras"] == ["tui"]
    return str(installed["download_info"]["url"])


def test_versions_agree() -> None:
    """The version is the same literal everywhere; the changelog has it, or waits to have it."""
    version = memtier_plugin.__version__
    manifest = yaml.safe_load((ROOT / "plugin.yaml").read_text("utf-8"))
    assert manifest["version"] == version
    for folder in ("bench", "papers"):
        project = tomllib.loads((ROOT / folder / "pyproject.toml").read_text("utf-8"))["project"]
        assert project["version"] == version
    latest = re.search(r"^## \[(.*?)\]", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert latest is not None
    assert latest[1] in ("Unreleased", version)


@pytest.mark.parametrize(("project", "tops"), PROJECTS)
def test_every_file_is_packaged(project: str, tops: tuple[str, ...]) -> None:
    """A folder or data file that pyproject.toml forgets would be missing from the wheel only."""
    root = ROOT / project
    setuptools = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"]
    mounted = setuptools.get("package-dir", {})
    assert mounted.keys() <= set(setuptools["packages"])
    places = {name: mounted.get(name, name.replace(".", "/")) for name in setuptools["packages"]}
    files = {
        path
        for top in tops
        for path in (root / top).rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }
    code = {path for path in files if path.suffix == ".py"}
    assert {path.parent.relative_to(root).as_posix() for path in code} == {*places.values()}
    patterns = [
        f"{places.get(package, package.replace('.', '/'))}/{pattern}"
        for package, patterns in setuptools["package-data"].items()
        for pattern in patterns
    ]
    packaged = {path for pattern in patterns for path in root.glob(pattern)}
    assert {str(path.relative_to(root)) for path in files - code - packaged} == set()


@pytest.mark.slow
def test_the_measurements_are_a_package_of_their_own(tmp_path: Path) -> None:
    """The wheel of `bench/` holds it and its data alone, and names its commands."""
    source = checkout(tmp_path / "source") / "bench"
    run(sys.executable, "-m", "build", "--wheel", "--outdir", tmp_path, cwd=source)
    (wheel,) = tmp_path.glob("memtier_bench-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        [points] = [archive.read(n).decode() for n in names if n.endswith("entry_points.txt")]
    tops = {name.partition("/")[0] for name in names}
    assert tops == {"memtier_bench", wheel.name.partition("-py3")[0] + ".dist-info"}
    assert {"memtier_bench/words/words.txt.gz", "memtier_bench/questions/generic.yaml"} <= {*names}
    assert "[memtier.commands]" in points


def test_checkout_is_importable(tmp_path: Path) -> None:
    """An uninstalled checkout works by its path alone."""
    out = run(sys.executable, "-c", WORKS, cwd=tmp_path, env={"PYTHONPATH": str(ROOT)})
    assert out.strip() == memtier_plugin.__version__


def test_command_is_the_module() -> None:
    """`python -m memtier_plugin` is the command line."""
    out = run(sys.executable, "-m", "memtier_plugin", "--version", cwd=ROOT)
    assert memtier_plugin.__version__ in out


@pytest.mark.parametrize("name", ["memtier", "mem-tier 0.1"])
def test_dropped_in_folder(tmp_path: Path, name: str) -> None:
    """A host loads the folder under any name: sys.path stays as it was, and two hosts share one."""
    shutil.copytree(ROOT, tmp_path / name, ignore=NOT_SHIPPED)
    host = (
        "import importlib.util, sys\n"
        "before = list(sys.path)\n"
        "for alias in ('_host_plugins_memtier', 'an other-name'):\n"
        "    spec = importlib.util.spec_from_file_location(\n"
        f"        alias, {str(tmp_path / name / '__init__.py')!r},\n"
        f"        submodule_search_locations=[{str(tmp_path / name)!r}])\n"
        "    sys.modules[alias] = importlib.util.module_from_spec(spec)\n"
        "    spec.loader.exec_module(sys.modules[alias])\n"
        "assert sys.path == before\n"
        "hooks = sys.modules['_host_plugins_memtier'].register(object())\n"
        "assert hooks is sys.modules['an other-name'].register(object())\n"
        "assert hooks.hook.before_prompt_build.get_hookimpls()\n"
        f"{WORKS}"
        f"assert memtier_plugin.__file__.startswith({str(tmp_path)!r})\n"
    )
    # -P: the folder that python is started in is not on sys.path; third parties come as installed.
    theirs = {"PYTHONPATH": str(Path(yaml.__file__).parents[1])}
    out = run(sys.executable, "-P", "-c", host, cwd=tmp_path, env=theirs)
    assert out.strip() == memtier_plugin.__version__


def test_the_folder_is_a_plugin_of_openclaw() -> None:
    """OpenClaw finds at the top what the installed plugin has: a copy, as it refuses a link."""
    ours = ROOT / "hooks" / "openclaw"
    manifest = ROOT / "openclaw.plugin.json"
    assert manifest.read_bytes() == (ours / "openclaw.plugin.json").read_bytes()
    assert not manifest.is_symlink()
    package = json.loads((ROOT / "package.json").read_text())
    [entry] = package["openclaw"]["extensions"]
    assert (ROOT / entry).resolve() == ours / "index.js"
    versions = [json.loads((top / "package.json").read_text())["version"] for top in (ROOT, ours)]
    assert {*versions, json.loads(manifest.read_text())["version"]} == {memtier_plugin.__version__}


@pytest.mark.slow
def test_wheel_and_sdist(built: Path) -> None:
    """The wheel holds memtier_plugin and its other name alone; the sdist, what a host needs."""
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    info = f"memtier-{memtier_plugin.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"memtier", "memtier_plugin", info}
    expected = {
        f"memtier_plugin/{path.relative_to(top).as_posix()}"
        for top in (ROOT / "memtier_plugin", ROOT)
        for path in top.rglob("*.py")
        if top != ROOT or path.relative_to(ROOT).parts[0] in ("hooks", "daemon", "config")
    }
    expected -= {"memtier_plugin/alias/__init__.py"}
    data = {
        "memtier/__init__.py",
        "memtier/py.typed",
        "memtier_plugin/py.typed",
        "memtier_plugin/config/memtier.yaml",
    }
    prompts = (ROOT / "memtier_plugin" / "providers" / "prompts").glob("*.md")
    data |= {f"memtier_plugin/providers/prompts/{path.name}" for path in prompts}
    shim = (ROOT / "hooks" / "openclaw").iterdir()
    data |= {f"memtier_plugin/hooks/openclaw/{path.name}" for path in shim}
    shipped = {name for name in names if not name.startswith(info)}
    assert shipped >= expected | data
    assert not any("bench" in name or "papers" in name for name in shipped)
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        inside = {name.partition("/")[2] for name in archive.getnames()}
    assert inside >= {"plugin.yaml", "__init__.py", "LICENSE", "README.md", "hooks/__init__.py"}


@pytest.mark.slow
def test_installed_wheel(built: Path, empty: Path, tmp_path: Path) -> None:
    """An installed wheel works from anywhere, with its command, and can add an extra."""
    (wheel,) = built.glob("*.whl")
    run(empty, "-m", "pip", "install", "--no-deps", "--force-reinstall", wheel, cwd=tmp_path)
    assert run(empty, "-P", "-c", WORKS + NAMED, cwd=tmp_path).strip() == memtier_plugin.__version__
    out = run(empty.with_name("memtier"), "--version", cwd=tmp_path)
    assert memtier_plugin.__version__ in out
    assert add_extra(empty, tmp_path) == wheel.as_uri()


@pytest.mark.slow
def test_editable_install(empty: Path, tmp_path: Path) -> None:
    """An editable install works from a path with spaces, follows the source, can add an extra."""
    source = checkout(tmp_path / "a check out")
    run(empty, "-m", "pip", "install", "--no-deps", "--force-reinstall", "-e", source, cwd=tmp_path)
    assert run(empty, "-P", "-c", WORKS + NAMED, cwd=tmp_path).strip() == memtier_plugin.__version__
    assert add_extra(empty, tmp_path) == source.as_uri()
    (source / "hooks" / "fresh.py").write_text("ANSWER = 42\n")
    code = "import memtier_plugin.hooks.fresh as fresh; print(fresh.ANSWER, fresh.__file__)"
    assert run(empty, "-P", "-c", code, cwd=tmp_path).startswith(f"42 {source}")
