# SPDX-FileCopyrightText: The fdd authors
# SPDX-License-Identifier: Apache-2.0
# Sourced by tools/setup, quickstart and runtests: runs long commands that a signal to
# the script ends with all their processes.
#   group CMD...   run in a process group of its own, without a terminal
#   aside CMD...   run in this group, where sudo may ask for a password
# shellcheck source=tools/dev/progress.sh
. "$(dirname "${BASH_SOURCE[0]}")/progress.sh"
job=
job_group=
stop_job() { # EXIT_CODE
    trap '' HUP INT TERM
    watched
    if [ -n "$job" ]; then
        kill -TERM -- "$job_group$job" 2>/dev/null || true
        wait "$job" 2>/dev/null || true
    fi
    exit "$1"
}
trap 'stop_job 129' HUP
trap 'stop_job 130' INT
trap 'stop_job 143' TERM
end_job() {
    local rc=0
    wait "$job" || rc=$?
    job=
    return $rc
}
group() {
    set -m
    "$@" </dev/null &
    job=$! job_group=-
    set +m
    end_job
}
aside() {
    "$@" <&0 &
    job=$! job_group=
    end_job
}
