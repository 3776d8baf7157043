package workspace

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// private is an empty git directory that a helper makes for one purpose and removes soon
// afterwards.
type private struct {
	g   *git
	at  *site
	dir string
}

// newPrivate makes a private git directory. git also finds objects in the given directories.
func newPrivate(g *git, at *site, objects ...string) (*private, error) {
	dir, err := os.MkdirTemp(at.Scratch, "git-")
	if err != nil {
		return nil, fmt.Errorf("make a private git directory: %w", err)
	}
	p := &private{g: g, at: at, dir: dir}
	if err := p.fill(objects); err != nil {
		p.remove()
		return nil, fmt.Errorf("make a private git directory: %w", err)
	}
	return p, nil
}

func (p *private) fill(objects []string) error {
	for _, sub := range []string{"objects/info", "objects/pack", "refs/heads", "info"} {
		if err := os.MkdirAll(filepath.Join(p.dir, sub), 0o700); err != nil {
			return err
		}
	}
	config := "[core]\n\trepositoryformatversion = 0\n\tbare = true\n"
	if format(p.at.Commit) == "sha256" {
		config = "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n"
	}
	// With these attributes git never runs a filter or a driver that a .gitattributes file in a tree
	// names.
	attributes := "* -filter !diff !merge\n"
	if p.at.CryptKey != "" {
		attributes = "* !diff !merge\n" // the only configured filter is git-crypt, in the method crypt
	}
	for name, text := range map[string]string{"HEAD": "ref: refs/heads/main\n", "config": config,
		"info/attributes": attributes} {
		if err := os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600); err != nil {
			return err
		}
	}
	if err := p.borrow(objects...); err != nil {
		return err
	}
	if err := deepen(p.dir, p.at.Shallow); err != nil {
		return err
	}
	return p.crypt()
}

// borrow makes git also look for objects in the given directories (git's alternates).
func (p *private) borrow(objects ...string) error {
	return writeFile(filepath.Join(p.dir, "objects", "info", "alternates"), []byte(strings.Join(objects, "\n")+"\n"))
}

func (p *private) remove() {
	if p != nil {
		_ = removeTree(p.dir) // after an error, the end of the helper removes the rest with its scratch directory
	}
}

func (p *private) git(ctx context.Context, c command) ([]byte, error) {
	c.dir = p.dir
	return p.g.run(ctx, c)
}

// line runs git and returns its output without leading and trailing space.
func (p *private) line(ctx context.Context, c command) (string, error) {
	out, err := p.git(ctx, c)
	return strings.TrimSpace(string(out)), err
}

func (p *private) has(ctx context.Context, commit string) bool {
	_, err := p.git(ctx, command{args: []string{"cat-file", "-e", commit + "^{commit}"}})
	return err == nil
}

// tree returns the tree of a commit, or the empty tree if commit is empty.
func (p *private) tree(ctx context.Context, commit string) (string, error) {
	if commit == "" {
		return p.line(ctx, command{stdin: bytes.NewReader(nil), args: []string{"mktree"}})
	}
	return p.line(ctx, command{args: []string{"rev-parse", "--verify", "--end-of-options", commit + "^{tree}"}})
}

// list returns the mode and the object of each file in a tree, by the name of the file.
func (p *private) list(ctx context.Context, tree string) (map[string]entry, error) {
	out, err := p.git(ctx, command{args: []string{"ls-tree", "-r", "-z", "--full-tree", tree}})
	if err != nil {
		return nil, err
	}
	all := make(map[string]entry, bytes.Count(out, []byte{0}))
	for line := range strings.SplitSeq(string(out), "\x00") {
		meta, name, ok := strings.Cut(line, "\t")
		if f := strings.Fields(meta); ok && len(f) == 3 {
			all[name] = entry{mode: f[0], object: f[2]}
		}
	}
	return all, nil
}

// kinds returns the types of objects, by the names of the objects. It omits objects that do not
// exist.
func (p *private) kinds(ctx context.Context, objects []string) (map[string]string, error) {
	found, err := p.find(ctx, objects)
	kinds := make(map[string]string, len(found))
	for _, o := range found {
		kinds[o.name] = o.kind
	}
	return kinds, err
}

// object is the full name and the type of an existing object.
type object struct{ name, kind string }

// find looks up objects by names that may be abbreviated. The map contains each object that exists,
// under the name that the caller gave.
func (p *private) find(ctx context.Context, names []string) (map[string]object, error) {
	found := make(map[string]object, len(names))
	if len(names) == 0 {
		return found, nil
	}
	out, err := p.git(ctx, command{
		stdin: lines(names), args: []string{"cat-file", "--batch-check=%(objectname) %(objecttype)"},
	})
	if err != nil {
		return nil, err
	}
	for i, line := range strings.Split(strings.TrimSuffix(string(out), "\n"), "\n") {
		if name, kind, ok := strings.Cut(line, " "); ok && i < len(names) && isObject(name) && kind != "missing" {
			found[names[i]] = object{name, kind}
		}
	}
	return found, nil
}

// writeTree applies the changes in info to oldTree and returns the resulting tree. The changes are
// in the format of git update-index.
func (p *private) writeTree(ctx context.Context, index, oldTree, info string) (string, error) {
	if _, err := p.git(ctx, command{index: index, args: []string{"read-tree", oldTree}}); err != nil {
		return "", err
	}
	if err := p.updateIndex(ctx, index, info); err != nil {
		return "", err
	}
	return p.line(ctx, command{index: index, args: []string{"write-tree"}})
}

// updateIndex changes an index. Each line of info has the mode, object and name of an entry.
func (p *private) updateIndex(ctx context.Context, index, info string) error {
	if info == "" {
		return nil
	}
	_, err := p.git(ctx, command{
		index: index, stdin: strings.NewReader(info), args: []string{"update-index", "-z", "--index-info"},
	})
	return err
}

// store writes an object and returns its name.
func (p *private) store(ctx context.Context, kind string, data []byte) (string, error) {
	return p.line(ctx, command{
		stdin: bytes.NewReader(data), args: []string{"hash-object", "-t", kind, "-w", "--stdin"},
	})
}

// setRefs sets HEAD and the refs of the private git directory.
func (p *private) setRefs(h head, refs map[string]string) error {
	var packed strings.Builder
	packed.WriteString("# pack-refs with: sorted \n")
	for _, ref := range sortedKeys(refs) {
		fmt.Fprintf(&packed, "%s %s\n", refs[ref], ref)
	}
	at := h.commit
	if h.ref != "" {
		at = "ref: " + h.ref
	}
	if err := writeFile(filepath.Join(p.dir, "packed-refs"), []byte(packed.String())); err != nil {
		return err
	}
	return writeFile(filepath.Join(p.dir, "HEAD"), []byte(at+"\n"))
}
