package workspace

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// piece is a part of a bundle, such as a branch, that can be omitted while the other parts are
// kept.
type piece struct {
	what  string // name of the piece for messages
	tier  tier
	minor bool // no bundle is made if all its pieces are minor
	add   func(*record)
}

// tier is the importance of a piece; ofHead is the most important tier. If the bundle is too large,
// the pieces of the least important tier are omitted first.
type tier int

const (
	ofHead tier = iota
	ofIndex
	ofBranches
	underWay
	ofStash
	ofTags // tags, notes, and all other refs
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

// change describes how a .git differs from its state before the command got it, as far as this can
// be found without reading objects.
type change struct {
	refs, links map[string]string
	gone        []string
	stash       []logEntry
	files       map[string][]byte
	under       bool // the files show that an operation such as a merge is in progress
	settings    []setting
	any         bool
}

// changed compares a repository with its state before the command got it.
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
	s.limitRefs(c)
	c.stash = repo.stashes(&s.lost)
	c.files, c.under = repo.underWay(&s.lost)
	c.settings = settings(ctx, s.proof, repo, &s.lost)
	repo.recordUnkept(&s.lost)
	handed := s.at.savedHead()
	moved := repo.head != handed || len(branches(c.refs)) != len(c.refs)
	for ref, object := range c.refs {
		moved = moved || ref != handed.ref || object != handed.commit
	}
	c.any = moved || c.under || len(c.links)+len(c.gone)+len(c.stash) > 0 || c.settings != nil
	return c
}

// limitRefs removes refs from c until at most maxRefs are left, and records the removed refs as
// lost. It removes refs of the least important tier first.
func (s *salvage) limitRefs(c *change) {
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

// pieces returns the pieces of which a bundle is made, such as branches. It records a ref to an
// unreadable object as lost.
func (s *salvage) pieces(ctx context.Context, reader *private, repo *repository, c *change, index *staged) ([]piece,
	error) {
	logs := repo.logs()
	found, err := reader.find(ctx, wanted(repo, c, logs))
	if err != nil {
		return nil, err
	}
	is := func(object, kind string) bool { return found[object].kind == kind }
	var all []piece
	on := "" // the branch that HEAD refers to
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
		all = append(all, piece{what: "the staged changes", tier: ofIndex, add: func(r *record) { r.index = index }})
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

// wanted returns the objects whose types the method pieces must look up.
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
			r.logs[stashRef] = append(r.logs[stashRef], e.withPrevious(r.refs[stashRef]))
			r.refs[stashRef] = e.object // the newest stash comes last
			r.commits = append(r.commits, e.object)
		}})
	}
	return all
}

func filePieces(files map[string][]byte, anything bool, found map[string]object) []piece {
	if len(files) == 0 {
		return nil
	}
	return []piece{{what: "the operation in progress", tier: underWay, minor: !anything, add: func(r *record) {
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

// logPieces returns one piece: the reflogs of HEAD and the branches, with the commits to which only
// these reflogs lead.
func logPieces(logs map[string][]logEntry, is func(object, kind string) bool) []piece {
	if len(logs) == 0 {
		return nil
	}
	return []piece{{what: "the reflogs of HEAD and the branches", tier: ofLogs, minor: true,
		add: func(r *record) {
			for ref, entries := range logs {
				for _, e := range entries {
					if !is(e.object, "commit") {
						continue
					}
					if r.commits = append(r.commits, e.object); is(e.was, "commit") {
						r.commits = append(r.commits, e.was)
					} else {
						e = e.withPrevious("")
					}
					r.logs[ref] = append(r.logs[ref], e)
				}
			}
		}}}
}

// record combines pieces (parts of the bundle, such as branches) into one record (the saved state
// of git). If HEAD is not among the pieces, the record gets the HEAD that the checkout had before
// the command.
func (s *salvage) record(c *change, pieces []piece) *record {
	handed := s.at.savedHead()
	r := &record{
		refs: make(map[string]string), links: c.links, gone: c.gone, logs: make(map[string][]logEntry),
		settings: c.settings, modern: true,
	}
	if !slices.ContainsFunc(pieces, func(p piece) bool { return p.tier == ofHead }) {
		if r.head = handed; handed.ref != "" {
			r.refs[handed.ref] = handed.commit
			r.links = maps.Clone(c.links)
			delete(r.links, handed.ref)
		}
	}
	for _, p := range pieces {
		p.add(r)
	}
	slices.Sort(r.commits)
	r.commits = slices.Compact(r.commits)
	return r
}
