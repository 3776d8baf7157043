package workspace

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// stateRef leads to a commit without files or parents whose message says where
// HEAD and the branches stood: a bundle alone cannot say what was moved to an older
// commit or removed, nor which of two branches at one commit was checked out.
const stateRef = "refs/belay/state"

const stateTitle = "where a workspace stood"

// writeState makes the commit of stateRef.
func (p *private) writeState(ctx context.Context, repo *repository) error {
	tree, err := p.tree(ctx, "")
	if err != nil {
		return err
	}
	var c strings.Builder
	fmt.Fprintf(&c, "tree %s\nauthor belay <belay@localhost> 0 +0000\ncommitter belay <belay@localhost> 0 +0000\n\n%s\n\n", tree, stateTitle)
	fmt.Fprintf(&c, "head %s\n", cmp.Or(repo.head.ref, repo.head.commit))
	for _, ref := range sortedKeys(repo.branches) {
		fmt.Fprintf(&c, "branch %s %s\n", repo.branches[ref], ref)
	}
	out, err := p.git(ctx, command{stdin: strings.NewReader(c.String()), args: []string{"hash-object", "-t", "commit", "-w", "--stdin"}})
	if err != nil {
		return err
	}
	_, err = p.git(ctx, command{args: []string{"update-ref", stateRef, strings.TrimSpace(string(out))}})
	return err
}

// parseState reads the commit of stateRef.
func parseState(raw string) (*repository, error) {
	_, message, ok := strings.Cut(raw, "\n\n"+stateTitle+"\n\n")
	if !ok {
		return nil, errors.New("the bundle does not say where HEAD stood")
	}
	r := &repository{branches: make(map[string]string)}
	for line := range strings.SplitSeq(message, "\n") {
		key, value, _ := strings.Cut(line, " ")
		switch key {
		case "head":
			if isObject(value) {
				r.head.commit = value
			} else if branch, ok := strings.CutPrefix(value, "refs/heads/"); ok && checkBranch(branch) {
				r.head.ref = value
			}
		case "branch":
			commit, ref, _ := strings.Cut(value, " ")
			if err := r.branch(ref, commit); err != nil {
				return nil, err
			}
		}
	}
	if r.head == (head{}) {
		return nil, errors.New("the bundle does not say where HEAD stood")
	}
	if r.head.ref != "" {
		r.head.commit = r.branches[r.head.ref]
	}
	return r, nil
}

func sortedKeys(m map[string]string) []string { return slices.Sorted(maps.Keys(m)) }
