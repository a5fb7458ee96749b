#!/bin/sh
# install.sh PYTHON TENSORFLOW TORCH_INDEX HASHES: what an environment needs, and this project in it.
#
# On Python 3.11, Linux and x86-64 every file is one of those whose hashes locks/*.txt name; elsewhere, and where HASHES is not "yes",
# versions are those of constraints.txt, and their files are believed unchecked.
set -eu
python=$1 tensorflow=$2 index=${3:+--extra-index-url $3} hashes=$4
here=$(dirname "$0")
pip() { "$python" -m pip --disable-pip-version-check install --no-compile "$@"; }
# a lock names every dependency: pip looks for no other
locked() { for file; do shift; set -- "$@" -r "$here/$file.txt"; done; pip $index --require-hashes --no-deps "$@"; }

if [ "$hashes" = yes ] && "$python" -c 'import platform, sys
sys.exit((sys.version_info[:2], platform.system(), platform.machine()) != ((3, 11), "Linux", "x86_64"))'; then
    torch=torch-cuda
    if [ ! -e /proc/driver/nvidia/version ]; then
        if pip $index --quiet --dry-run --no-deps --require-hashes -r "$here/torch-cpu.txt" >/dev/null 2>&1; then
            torch=torch-cpu
        elif [ -n "$index" ]; then
            echo "No CPU build of PyTorch with the hash of locks/torch-cpu.txt was found: HASHES=no takes it unchecked." >&2
            exit 2
        else
            echo "No NVIDIA driver was found: TORCH_INDEX=https://download.pytorch.org/whl/cpu saves gigabytes of CUDA libraries."
        fi
    fi
    locked all "$torch" ${tensorflow:+"$tensorflow"}
    pip --no-deps --no-build-isolation --editable .
else
    echo "Versions are those of constraints.txt, and no hashes are checked: those of locks/ are for Python 3.11 on Linux with x86-64."
    [ -z "$index" ] || pip --constraint constraints.txt $index torch
    pip --constraint constraints.txt --editable ".[study,dev${tensorflow:+,$tensorflow}]"
fi
