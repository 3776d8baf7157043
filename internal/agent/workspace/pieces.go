package workspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// piece is a part of a bundle without which the others can be kept.
type piece struct {
	what  string // in words
	tier  tier
	minor bool // not worth a bundle by itself
	add   func(*record)
}

// tier says in which order pieces are left out where all is too much: the last first.
type tier int

const (
	ofHead tier = iota
	ofIndex
	ofBranches
	underWay
	ofStash
	ofTags // and notes, and whatever else
	ofRemotes
	ofLogs
)

func tierOf(ref string) tier {
	switch {
	case strings.HasPrefix(ref, heads):
		return ofBranches
	case strings.HasPrefix(ref, "refs/remotes/"):
		return ofRemotes
	}
	return ofTags
}

// change is what a .git holds beside what was handed over, as far as it can be told
// without reading objects.
type change struct {
	refs, links map[string]string
	gone        []string
	stash       []logEntry
	files       map[string][]byte
	under       bool // the files tell of something
	settings    []setting
	any         bool
}

// changed compares a repository with what was handed over.
func (s *salvage) changed(ctx context.Context, repo *repository) *change {
	was, links := refsOf(s.at.Refs)
	c := &change{refs: make(map[string]string), links: make(map[string]string)}
	for ref, object := range repo.refs {
		if strings.HasPrefix(ref, heads) || was[ref] != object && ref != stashRef {
			c.refs[ref] = object
		}
	}
	for ref, target := range repo.links {
		if links[ref] != target {
			c.links[ref] = target
		}
	}
	if !repo.partial {
		for _, ref := range slices.Concat(sortedKeys(was), sortedKeys(links)) {
			_, link := repo.links[ref]
			if repo.refs[ref] == "" && !link && !strings.HasPrefix(ref, heads) {
				c.gone = append(c.gone, ref)
			}
		}
	}
	s.bound(c)
	c.stash = repo.stashes(&s.lost)
	c.files, c.under = repo.underWay(&s.lost)
	c.settings = settings(ctx, s.proof, repo, &s.lost)
	repo.leaves(&s.lost)
	stood := s.at.stood()
	moved := repo.head != stood || len(branches(c.refs)) != len(c.refs)
	for ref, object := range c.refs {
		moved = moved || ref != stood.ref || object != stood.commit
	}
	c.any = moved || c.under || len(c.links)+len(c.gone)+len(c.stash) > 0 || c.settings != nil
	return c
}

// bound leaves out refs that are beyond what is kept, those of others first.
func (s *salvage) bound(c *change) {
	if len(c.refs) <= maxRefs {
		return
	}
	names := sortedKeys(c.refs)
	slices.SortStableFunc(names, func(a, b string) int { return int(tierOf(a) - tierOf(b)) })
	for _, ref := range names[maxRefs:] {
		s.lost.add("%s, one of more than %d refs", ref, maxRefs)
		delete(c.refs, ref)
	}
}

// pieces are what a bundle is made of. What leads to objects that are not there is named
// as lost.
func (s *salvage) pieces(ctx context.Context, reader *private, repo *repository, c *change, index *staged) ([]piece,
	error) {
	logs := repo.logs()
	found, err := reader.find(ctx, wanted(repo, c, logs))
	if err != nil {
		return nil, err
	}
	is := func(object, kind string) bool { return found[object].kind == kind }
	var all []piece
	on := "" // the branch that goes with HEAD
	if commit := repo.head.commit; commit != "" && !is(commit, "commit") {
		s.lost.add("its commits (HEAD is at %s, which is no commit that can be read); the patch holds the files "+
			"as they were left", commit)
	} else {
		on = follow(repo.links, repo.head.ref)
		all = append(all, piece{what: "HEAD", tier: ofHead, add: func(r *record) {
			if r.head = repo.head; commit != "" && on != "" {
				r.refs[on] = commit
			}
		}})
	}
	if index != nil {
		all = append(all, piece{what: "what was staged", tier: ofIndex, add: func(r *record) { r.index = index }})
	}
	for _, ref := range sortedKeys(c.refs) {
		object := c.refs[ref]
		switch tier := tierOf(ref); {
		case ref == on:
		case tier == ofBranches && !is(object, "commit"):
			s.lost.add("branch %s, which leads to no commit that can be read", strings.TrimPrefix(ref, heads))
		case found[object].kind == "":
			s.lost.add("%s, which leads to no object that can be read", ref)
		default:
			all = append(all, piece{what: ref, tier: tier, add: func(r *record) {
				r.refs[ref] = object
				if !is(object, "commit") && !is(object, "tag") {
					r.objects = append(r.objects, object)
				}
			}})
		}
	}
	return slices.Concat(all, stashPieces(c.stash, is, &s.lost), filePieces(c.files, c.under, found),
		logPieces(logs, is)), nil
}

// wanted are the objects about which the pieces need to know.
func wanted(repo *repository, c *change, logs map[string][]logEntry) []string {
	all := named(c.files)
	if repo.head.commit != "" {
		all = append(all, repo.head.commit)
	}
	for _, object := range c.refs {
		all = append(all, object)
	}
	for _, e := range c.stash {
		all = append(all, e.object)
	}
	for _, entries := range logs {
		for _, e := range entries {
			all = append(all, e.object, e.was)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

func stashPieces(stash []logEntry, is func(object, kind string) bool, lost *losses) (all []piece) {
	for i, e := range stash {
		if !is(e.object, "commit") {
			lost.add("stash@{%d}, which leads to no commit that can be read", len(stash)-1-i)
			continue
		}
		all = append(all, piece{what: fmt.Sprintf("stash@{%d}", len(stash)-1-i), tier: ofStash, add: func(r *record) {
			r.logs[stashRef] = append(r.logs[stashRef], e.after(r.refs[stashRef]))
			r.refs[stashRef] = e.object // the newest is the last
			r.commits = append(r.commits, e.object)
		}})
	}
	return all
}

func filePieces(files map[string][]byte, anything bool, found map[string]object) []piece {
	if len(files) == 0 {
		return nil
	}
	return []piece{{what: "what was under way", tier: underWay, minor: !anything, add: func(r *record) {
		r.files = files
		for _, word := range named(files) {
			switch o := found[word]; o.kind {
			case "commit":
				r.commits = append(r.commits, o.name)
			case "tree", "blob":
				r.objects = append(r.objects, o.name)
			}
		}
	}}}
}

// logPieces are the logs of HEAD and the branches, with the commits that only they
// lead to.
func logPieces(logs map[string][]logEntry, is func(object, kind string) bool) []piece {
	if len(logs) == 0 {
		return nil
	}
	return []piece{{what: "the log of where HEAD and the branches stood", tier: ofLogs, minor: true,
		add: func(r *record) {
			for ref, entries := range logs {
				for _, e := range entries {
					if !is(e.object, "commit") {
						continue
					}
					if r.commits = append(r.commits, e.object); is(e.was, "commit") {
						r.commits = append(r.commits, e.was)
					} else {
						e = e.after("")
					}
					r.logs[ref] = append(r.logs[ref], e)
				}
			}
		}}}
}

// record puts pieces together. Without the one of HEAD it stands where it stood.
func (s *salvage) record(c *change, pieces []piece) *record {
	stood := s.at.stood()
	r := &record{
		refs: make(map[string]string), links: c.links, gone: c.gone, logs: make(map[string][]logEntry),
		settings: c.settings, modern: true,
	}
	if !slices.ContainsFunc(pieces, func(p piece) bool { return p.tier == ofHead }) {
		if r.head = stood; stood.ref != "" {
			r.refs[stood.ref] = stood.commit
			r.links = maps.Clone(c.links)
			delete(r.links, stood.ref)
		}
	}
	for _, p := range pieces {
		p.add(r)
	}
	slices.Sort(r.commits)
	r.commits = slices.Compact(r.commits)
	return r
}
