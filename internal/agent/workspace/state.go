package workspace

import (
	"archive/tar"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
)

// stateRef is a ref in each bundle. Its commit has a message with the values of HEAD and the refs.
// The refs of a bundle cannot express that a branch was moved to an older commit or deleted, nor
// which of two branches at one commit was checked out. The parents of the commit are commits that
// no ref leads to and that the bundle must contain. Its tree has
//
//	staged   the staged files, if they differ from HEAD
//	objects  other objects that must be in the bundle
//	record   a tar: files of the .git, reflogs, settings, and the entries of the index that a tree
//	         cannot represent
const stateRef = "refs/belay/state"

const stateTitle = "where a workspace stood"

// record is the saved state of git in a bundle, apart from the commits of the branches.
type record struct {
	head  head
	refs  map[string]string // all branches, and other refs that changed
	links map[string]string // symbolic refs that changed
	gone  []string          // refs other than branches that the command has deleted
	index *staged           // the staged changes; nil if the index equals HEAD
	files map[string][]byte // files of .git that describe an operation in progress, by name
	logs  map[string][]logEntry
	// settings are the settings of git that Salvage keeps; nil if the command has not changed them.
	settings []setting
	// commits and objects are objects that no ref leads to and that the bundle must contain.
	commits, objects []string

	// modern is false for a bundle of an older version, which contains only HEAD and refs.
	modern bool
}

// The names of the entries in the tree of stateRef's commit, and of the files in the tar archive
// that is the entry "record".
const (
	recordFile, stagedDir, objectsDir          = "record", "staged", "objects"
	specialFile, logsFile, settingsFile, gitIn = "special", "logs", "settings", "git/"
)

// writeState writes the commit to which stateRef will lead, and returns the name of the commit.
func (p *private) writeState(ctx context.Context, r *record) (string, error) {
	tree, err := p.stateTree(ctx, r)
	if err != nil {
		return "", err
	}
	var c strings.Builder
	fmt.Fprintf(&c, "tree %s\n", tree)
	for _, parent := range r.commits {
		fmt.Fprintf(&c, "parent %s\n", parent)
	}
	fmt.Fprintf(&c, "author belay <belay@localhost> 0 +0000\ncommitter belay <belay@localhost> 0 +0000\n\n%s\n\n",
		stateTitle)
	fmt.Fprintf(&c, "head %s\n", cmp.Or(r.head.ref, r.head.commit))
	for _, ref := range sortedKeys(r.refs) {
		key := "ref"
		if strings.HasPrefix(ref, heads) {
			key = "branch"
		}
		fmt.Fprintf(&c, "%s %s %s\n", key, r.refs[ref], ref)
	}
	for _, ref := range sortedKeys(r.links) {
		fmt.Fprintf(&c, "link %s %s\n", r.links[ref], ref)
	}
	for _, ref := range r.gone {
		fmt.Fprintf(&c, "gone %s\n", ref)
	}
	return p.store(ctx, "commit", []byte(c.String()))
}

func (p *private) stateTree(ctx context.Context, r *record) (string, error) {
	raw, err := r.pack()
	if err != nil {
		return "", err
	}
	blob, err := p.store(ctx, "blob", raw)
	if err != nil {
		return "", err
	}
	entries := fmt.Sprintf("100644 blob %s\t%s\x00", blob, recordFile)
	if r.index != nil {
		entries += fmt.Sprintf("040000 tree %s\t%s\x00", r.index.tree, stagedDir)
	}
	if objects := r.needed(); len(objects) > 0 {
		kinds, err := p.kinds(ctx, objects)
		if err != nil {
			return "", err
		}
		var in strings.Builder
		for i, o := range objects {
			mode := "100644"
			if kinds[o] == "tree" {
				mode = "040000"
			}
			fmt.Fprintf(&in, "%s %s %s\t%05d\x00", mode, kinds[o], o, i)
		}
		tree, err := p.line(ctx, command{stdin: strings.NewReader(in.String()), args: []string{"mktree", "-z"}})
		if err != nil {
			return "", err
		}
		entries += fmt.Sprintf("040000 tree %s\t%s\x00", tree, objectsDir)
	}
	return p.line(ctx, command{stdin: strings.NewReader(entries), args: []string{"mktree", "-z"}})
}

// needed returns the objects to which the tree of the commit of stateRef must lead, so that the
// bundle contains them.
func (r *record) needed() []string {
	all := slices.Clone(r.objects)
	if r.index != nil {
		for _, s := range r.index.special {
			if !s.whole() && s.mode != submodule {
				all = append(all, s.object)
			}
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// pack returns the record (the saved state of git) as a tar archive.
func (r *record) pack() ([]byte, error) {
	parts := make(map[string][]byte)
	for name, data := range r.files {
		parts[gitIn+name] = data
	}
	if r.index != nil && len(r.index.special) > 0 {
		parts[specialFile] = specialText(r.index.special)
	}
	if len(r.logs) > 0 {
		var b bytes.Buffer
		for _, ref := range slices.Sorted(maps.Keys(r.logs)) {
			b.WriteString(ref + "\n")
			b.Write(logText(r.logs[ref]))
			b.WriteString("\n")
		}
		parts[logsFile] = b.Bytes()
	}
	if r.settings != nil {
		parts[settingsFile] = settingsText(r.settings)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range sortedNames(parts) {
		if err := w.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(parts[name])),
			Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
		if _, err := w.Write(parts[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

// unpack parses the archive that pack makes. It refuses unknown entries, because the archive may
// come from an attacker.
func (r *record) unpack(raw []byte) error {
	in := tar.NewReader(bytes.NewReader(raw))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		data, err := io.ReadAll(io.LimitReader(in, maxLogs+maxState))
		if err != nil {
			return err
		}
		name, file := strings.CutPrefix(h.Name, gitIn)
		switch {
		case h.Typeflag != tar.TypeReg:
			return fmt.Errorf("%q is no file", h.Name)
		case file && isState(name):
			r.files[name] = data
		case h.Name == specialFile && r.index != nil:
			if r.index.special, err = readSpecial(data); err != nil {
				return err
			}
		case h.Name == settingsFile:
			r.settings = append([]setting{}, parseSettings(data)...)
		case h.Name == logsFile:
			r.readLogs(data)
		default:
			return fmt.Errorf("%q is not expected", h.Name)
		}
	}
}

func (r *record) readLogs(data []byte) {
	for log := range bytes.SplitSeq(data, []byte("\n\n")) {
		name, lines, _ := bytes.Cut(log, []byte("\n"))
		if ref := string(name); ref == "HEAD" || checkRef(ref) == nil {
			r.logs[ref], _ = parseLog(lines)
		}
	}
}

// readState reads the record (the saved state of git) from the commit that stateRef leads to.
func readState(ctx context.Context, g *git, dir, state string) (*record, error) {
	run := func(args ...string) (string, error) {
		out, err := g.run(ctx, command{dir: dir, args: args})
		return string(out), err
	}
	raw, err := run("cat-file", "commit", state)
	if err != nil {
		return nil, err
	}
	r, err := parseState(raw)
	if err != nil {
		return nil, err
	}
	entries, err := run("ls-tree", "-z", state)
	if err != nil {
		return nil, err
	}
	blob := ""
	for line := range strings.SplitSeq(entries, "\x00") {
		meta, name, _ := strings.Cut(line, "\t")
		f := strings.Fields(meta)
		switch {
		case len(f) != 3:
		case name == stagedDir && f[1] == "tree":
			r.index = &staged{tree: f[2]}
		case name == recordFile && f[1] == "blob":
			blob = f[2]
		}
	}
	if blob == "" {
		return r, nil // an older version of Belay stored no record
	}
	r.modern = true
	raw, err = run("cat-file", "blob", blob)
	if err == nil {
		err = r.unpack([]byte(raw))
	}
	if err != nil {
		return nil, fmt.Errorf("the state of the workspace in the bundle: %w", err)
	}
	return r, nil
}

// parseState parses the message of the commit that stateRef leads to.
func parseState(raw string) (*record, error) {
	_, message, ok := strings.Cut(raw, "\n\n"+stateTitle+"\n\n")
	if !ok {
		return nil, errors.New("the bundle does not contain the value of HEAD")
	}
	r := &record{
		refs: make(map[string]string), links: make(map[string]string), files: make(map[string][]byte),
		logs: make(map[string][]logEntry),
	}
	for line := range strings.SplitSeq(message, "\n") {
		key, value, _ := strings.Cut(line, " ")
		to, ref, _ := strings.Cut(value, " ")
		switch {
		case key == "head" && isObject(value):
			r.head.commit = value
		case key == "head" && strings.HasPrefix(value, heads) && checkRef(value) == nil:
			r.head.ref = value
		case key == "gone" && checkRef(value) == nil:
			r.gone = append(r.gone, value)
		case checkRef(ref) != nil || strings.HasPrefix(ref, ownRefs) || strings.HasPrefix(ref, replaceRefs):
		case (key == "branch" || key == "ref") && isObject(to):
			r.refs[ref] = to
		case key == "link" && checkRef(to) == nil:
			r.links[ref] = to
		}
	}
	if r.head == (head{}) {
		return nil, errors.New("the bundle does not contain the value of HEAD")
	}
	if r.head.ref != "" {
		r.head.commit = resolve(r.refs, r.links, r.head.ref)
	}
	return r, nil
}

func sortedKeys(m map[string]string) []string  { return slices.Sorted(maps.Keys(m)) }
func sortedNames(m map[string][]byte) []string { return slices.Sorted(maps.Keys(m)) }
