# An agent that does one job: it waits for $1 seconds at a time, and is job $2.
pause=$1
job=$2
if [ "$job" = none ]; then exit; fi

# g runs git. A git command that fails is reported, and repeated up to four times, as an agent would do.
g() {
  tries=0
  until git "$@" >"$TMPDIR/said" 2>&1; do
    echo "failed: git $*: $(head -n 1 "$TMPDIR/said")"
    tries=$((tries + 1))
    if [ $tries -ge 4 ]; then break; fi
    sleep 0.2
  done
}

sleep $pause
g checkout -q -b job-$job --track origin/main
echo "job $job" >>shared.txt
echo "job $job" >own-$job.txt
for file in bufio/bufio.go fmt/print.go os/file.go strings/strings.go; do
  echo "// job $job" >>$file
done
g status --porcelain
g diff --stat
g add -A
g commit -q -m "one of $job"

sleep $pause
echo "again $job" >>shared.txt
g stash -q
# The user of the job may be another than the owner of the repository.
g fetch -q --upload-pack "git -c safe.directory=* upload-pack" origin
g rebase -q origin/main
g stash pop -q

sleep $pause
g status --porcelain
g add -A
g commit -q -m "two of $job"
g branch -q scratch-$job
g branch -q -D scratch-$job
g gc -q --auto

sleep $pause
git log --format=%s -n 2
cat shared.txt
