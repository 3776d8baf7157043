package workspace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits for the refs of a checkout.
const (
	maxRefFiles = 50_000 // files read, directories included
	maxRefs     = 10_000 // changed refs that are kept
	maxRefName  = 1024
)

// Refs with a special meaning.
const (
	stashRef    = "refs/stash"
	heads       = "refs/heads/"
	ownRefs     = "refs/belay/"
	replaceRefs = "refs/replace/"
)

// checkRef returns an error for a name that git does not allow for a ref, or that some file systems
// do not allow for a file.
func checkRef(ref string) error {
	switch {
	case !strings.HasPrefix(ref, "refs/"):
		return errors.New("it does not begin with refs/")
	case len(ref) > maxRefName:
		return fmt.Errorf("its name has more than %d bytes", maxRefName)
	case !checkBranch(strings.TrimPrefix(ref, "refs/")):
		return errors.New("it is not the name of a ref")
	}
	for part := range strings.SplitSeq(ref, "/") {
		if len(part) > 200 {
			return errors.New("a part of its name is too long")
		}
	}
	return nil
}

// readRefs reads all refs: first the loose refs, each of which is a file, and then the packed refs.
func (r *repository) readRefs(ctx context.Context, lost *losses) {
	left := maxRefFiles
	r.readLoose(ctx, "refs", &left, lost)
	if err := r.readPacked(lost); err != nil {
		lost.add("the refs in packed-refs (%v)", err)
		r.partial = true
	}
	r.settleNames(lost)
}

func (r *repository) readPacked(lost *losses) error {
	raw, err := r.read("packed-refs", maxPackedRefs)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for line := range bytes.Lines(raw) {
		object, name, ok := bytes.Cut(bytes.TrimSuffix(line, []byte("\n")), []byte(" "))
		if !ok || line[0] == '#' {
			continue
		}
		ref := string(name)
		if _, ok := r.links[ref]; ok || r.refs[ref] != "" {
			continue // the loose ref is newer
		}
		r.note(ref, string(object), lost)
	}
	return nil
}

// readLoose reads the loose refs (the refs that have a file of their own) below a directory.
func (r *repository) readLoose(ctx context.Context, dir string, left *int, lost *losses) {
	if err := r.loose(ctx, dir, left, lost); err != nil && !errors.Is(err, fs.ErrNotExist) {
		lost.add("the refs in %s (%v)", dir, err)
		r.partial = true
	}
}

func (r *repository) loose(ctx context.Context, dir string, left *int, lost *losses) error {
	d, err := r.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return withoutPath(err)
	}
	defer d.Close()
	for {
		entries, err := d.ReadDir(512)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return withoutPath(err)
		}
		slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
		for _, e := range entries {
			if *left--; *left < 0 || ctx.Err() != nil {
				return fmt.Errorf("only the first %d were checked", maxRefFiles-max(*left, 0))
			}
			switch name := path.Join(dir, e.Name()); {
			case strings.HasSuffix(name, ".lock"):
			case len(name) > maxRefName:
				lost.add("%.80s…, whose name is too long", name)
			case e.IsDir():
				r.readLoose(ctx, name, left, lost)
			default:
				r.looseRef(name, lost)
			}
		}
	}
}

func (r *repository) looseRef(name string, lost *losses) {
	raw, err := r.read(name, maxRefFile)
	if err != nil {
		lost.add("%s (%v)", name, err)
		r.partial = true
		return
	}
	text := strings.TrimSpace(string(raw))
	target, link := strings.CutPrefix(text, "ref:")
	if !link {
		r.note(name, text, lost)
		return
	}
	target = strings.TrimSpace(target)
	if checkRef(name) != nil || checkRef(target) != nil {
		lost.add("%s, which leads to no ref", name)
		return
	}
	r.links[name] = target
}

// note records a ref of the checkout. If the ref cannot be kept, note records it as lost.
func (r *repository) note(ref, object string, lost *losses) {
	switch err := checkRef(ref); {
	case err != nil:
		lost.add("%s (%v)", ref, err)
	case strings.HasPrefix(ref, ownRefs):
		lost.add("%s, a name reserved for belay", ref)
	case strings.HasPrefix(ref, replaceRefs):
		lost.add("%s, which would replace objects", ref)
	case !isObject(object):
		lost.add("%s, which holds no object", ref)
	default:
		r.refs[ref] = object
	}
}

// settleNames removes refs that cannot be stored: a ref whose name lies below another ref, such as
// a/b if there is a ref a, and symbolic refs that lead to no ref.
func (r *repository) settleNames(lost *losses) {
	for _, name := range sortedKeys(r.links) {
		if follow(r.links, name) == "" {
			lost.add("%s, which leads to no ref", name)
			delete(r.links, name)
			r.partial = true
		}
	}
	for _, names := range [][]string{sortedKeys(r.refs), sortedKeys(r.links)} {
		for _, name := range names {
			for dir := path.Dir(name); dir != "refs" && dir != "."; dir = path.Dir(dir) {
				if _, link := r.links[dir]; link || r.refs[dir] != "" {
					lost.add("%s, because there is also %s", name, dir)
					delete(r.refs, name)
					delete(r.links, name)
					break
				}
			}
		}
	}
}

// text writes all refs in the format that refsOf reads.
func (r *repository) text() []byte {
	var b bytes.Buffer
	for _, ref := range sortedKeys(r.refs) {
		fmt.Fprintf(&b, "%s %s\n", r.refs[ref], ref)
	}
	for _, ref := range sortedKeys(r.links) {
		fmt.Fprintf(&b, "ref:%s %s\n", r.links[ref], ref)
	}
	return b.Bytes()
}

// refsOf parses refs in the format that the method text writes.
func refsOf(text []byte) (refs, links map[string]string) {
	refs, links = make(map[string]string), make(map[string]string)
	for line := range strings.SplitSeq(string(text), "\n") {
		value, name, ok := strings.Cut(line, " ")
		if target, link := strings.CutPrefix(value, "ref:"); ok && link {
			links[name] = target
		} else if ok {
			refs[name] = value
		}
	}
	return refs, links
}

// branches returns the refs below refs/heads.
func branches(refs map[string]string) map[string]string {
	found := make(map[string]string)
	for ref, object := range refs {
		if strings.HasPrefix(ref, heads) {
			found[ref] = object
		}
	}
	return found
}
