#!/bin/sh
# all.sh BINARY [--seed N --count N --for SECONDS]: every attack on the program, one after the other. Exit 1 if one of
# them found something. Each of the scripts says in its first lines what it does; `--only CASE` of one of them repeats a
# case.
set -eu
here=$(cd -- "$(dirname -- "$0")" && pwd)
failed=0
for attack in run_files run_folder kill stopped_devices full_disk; do
    python3 "$here/$attack.py" "$@" || failed=1
done
exit $failed
