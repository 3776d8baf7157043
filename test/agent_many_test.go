package test

import (
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// goSources makes a repository of Go's own source tree, with at most the given number of files.
func (p *place) goSources(most int) (repo string, files int) {
	p.t.Helper()
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		p.t.Fatal(err)
	}
	src := filepath.Join(strings.TrimSpace(string(root)), "src")
	repo = p.path("sources")
	err = filepath.WalkDir(src, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		if files == most {
			return fs.SkipAll
		}
		files++
		to := filepath.Join(repo, strings.TrimPrefix(path, src))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		b, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(to, b, 0o644)
	})
	if err != nil {
		p.t.Fatal(err)
	}
	p.git(p.root, "init", "-q", "-b", "main", repo)
	p.git(repo, "add", "-A")
	p.git(repo, "commit", "-q", "-m", "sources")
	return repo, files
}

// Rule: many jobs that edit, commit and run git at once on one large repository never affect each
// other: no job waits for a git lock of another job, and no job sees another job's changes. The
// stored changes of a job are its own commits and nothing else.
func TestManyJobsOnOneRepository(t *testing.T) {
	t.Parallel()
	p := newPlace(t)
	jobs, concurrency, most := 8, 4, 400
	if *long {
		jobs, concurrency, most = 50, 10, 1<<30
	}
	repo, files := p.goSources(most)
	if *long && files < 5000 {
		t.Fatalf("the repository has %d files", files)
	}
	a := p.assisted([]string{fmt.Sprintf("MAX_CONCURRENCY=%d", concurrency)}, append(bare, "--agent-repo", repo)...)
	began := time.Now()
	ids := make([]string, jobs)
	for i := range ids {
		ids[i] = a.ask(fmt.Sprintf("edit shared.txt job %d\nedit own-%d.txt job %d\ncommit one of %d\ngit pull -q "+
			"--rebase\ngit checkout -q -b side-%d\n"+
			"edit shared.txt again %d\ncommit two of %d\ngit fetch -q origin\ngit status --porcelain\ngit gc "+
			"-q\ngit log --format=%%s -3\ncat shared.txt", i, i, i, i, i, i, i))
	}
	var setup time.Duration
	for i, id := range ids {
		got := a.wantEnd(id, "completed", 0.0)
		want := fmt.Sprintf("two of %d\none of %d\nsources\njob %d\nagain %d\n", i, i, i, i)
		if got.string("result") != want {
			t.Errorf("job %d: %q", i, got.string("result"))
		}
		if c, _ := got.at("changes", "commits").(float64); c != 2 || got.at("changes", "lost") != nil ||
			got.at("changes", "patch") != nil {
			t.Errorf("job %d has changed %v", i, got.at("changes"))
		}
		x := p.execution(parse(t, id))
		var ran agent.Answer
		decode(t, string(x.Output), &ran)
		setup = max(setup, x.FinishedAt.Sub(x.StartedAt)-time.Duration(ran.DurationMS)*time.Millisecond)
	}
	t.Logf("%d jobs, %d at a time, on %d files in %s; at most %s of one job around its agent", jobs, concurrency, files,
		time.Since(began).Round(time.Millisecond), setup.Round(time.Millisecond))
	p.contents(repo, ids)
	end := a.stop()
	said := regexp.MustCompile(`setup_lock_p50=(\S+) setup_lock_p99=(\S+) setup_lock_wait_p99=(\S+)`).FindStringSubmatch(end.err)
	if said == nil {
		t.Fatalf("the server does not report how long it had its lock\n%s", end)
	}
	t.Logf("the set-up lock: %q", said[0])
	if p99, err := time.ParseDuration(said[2]); err != nil || p99 >= 2*time.Second {
		t.Errorf("the server had the set-up lock for %s at the 99th percentile, %v", said[2], err)
	}
}

// contents checks the content of each job's stored changes: when they are applied to the
// repository, the job's commits change the two files of that job and no other file.
func (p *place) contents(repo string, ids []string) {
	p.t.Helper()
	for i, id := range ids {
		file := p.path(fmt.Sprintf("work-%d.bundle", i))
		if err := os.WriteFile(file, []byte(p.artifact(parse(p.t, id), "step-1.bundle")), 0o600); err != nil {
			p.t.Fatal(err)
		}
		p.git(repo, "fetch", "-q", file, fmt.Sprintf("refs/heads/side-%d:refs/heads/side-%d", i, i))
		changed := p.git(repo, "diff", "--name-only", "main", fmt.Sprintf("side-%d", i))
		if changed != fmt.Sprintf("own-%d.txt\nshared.txt", i) {
			p.t.Errorf("job %d changed %q", i, changed)
		}
		if text := p.git(repo, "show", fmt.Sprintf("side-%d:shared.txt", i)); text != fmt.Sprintf("job %d\nagain %d", i,
			i) {
			p.t.Errorf("job %d wrote %q", i, text)
		}
	}
	if all := p.executions(); len(all) != len(ids) || all[0].State != belay.Succeeded {
		p.t.Errorf("there are %d executions", len(all))
	}
}
