package jobs

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// verdict is the result of checking one job.
type verdict struct {
	commits int
	wrong   string // why the job is wrong; "" if it is right
	foreign bool   // the job's branch or output has text of another job
}

// check checks the branch of the i-th job in a clone, and the text that the job has read.
func (p place) check(ctx context.Context, i int, read string) (v verdict) {
	branch := fmt.Sprintf("refs/heads/job-%d", i)
	ask := func(args ...string) string {
		out, err := p.git(ctx, args...)
		if err != nil && v.wrong == "" {
			v.wrong = err.Error()
		}
		return out
	}
	subjects := ask("log", "--format=%s", "main.."+branch, "--")
	names := ask("diff", "--name-only", "main..."+branch, "--")
	lines := ask("diff", "main..."+branch, "--")
	shared := ask("show", branch+":shared.txt")
	v.commits = strings.Count(subjects, "\n")
	v.foreign = foreign(i, subjects+names+lines+read)
	files := append([]string{fmt.Sprintf("own-%d.txt", i)}, changed...)
	slices.Sort(files)
	mine := fmt.Sprintf("job %d\nagain %d\n", i, i)
	messages := fmt.Sprintf("two of %d\none of %d\n", i, i)
	for _, w := range []struct{ what, got, want string }{
		{"commits", subjects, messages}, {"files", names, strings.Join(files, "\n") + "\n"},
		{"shared.txt", shared, mine}, {"what it has read", read, messages + mine},
	} {
		if v.wrong == "" && w.got != w.want {
			v.wrong = fmt.Sprintf("%s: %q, want %q", w.what, w.got, w.want)
		}
	}
	return v
}
