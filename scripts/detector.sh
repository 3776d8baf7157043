#!/bin/sh
# Runs a test binary that was built with the race detector, as in: go test -race -exec scripts/detector.sh
#
# The detector of Go 1.26 itself fails now and then at the start of a test binary (tsan_rtl.cpp:346, a slot of a thread
# that another thread has taken), about once in forty runs of ./worker on two processors. Then no test has failed, and
# the binary runs once more. All other failures end the run.
out=$(mktemp) || exit 1
trap 'rm -f "$out"' EXIT
run() {
	{ status=$( { { "$@" 2>&1; echo $? >&3; } | tee "$out" >&4; } 3>&1 ); } 4>&1
}
run "$@"
if [ "$status" != 0 ] && grep -q 'ThreadSanitizer: CHECK failed: tsan_rtl.cpp:346 ' "$out"; then
	echo "the race detector failed; the tests run again"
	run "$@"
fi
exit "$status"
