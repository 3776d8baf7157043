package workspace

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Limits for the files of .git that describe an operation in progress.
const (
	maxStateFile  = 1 << 20
	maxStateFiles = 2_000
	maxState      = 8 << 20 // total size in bytes
	maxNeeds      = 5_000   // number of objects that the files name
)

// stateFiles are the files of .git that describe an operation in progress, such as a merge, a
// rebase or a bisection. A file is significant if it exists only during such an operation.
var stateFiles = []struct {
	name        string
	significant bool
}{
	{"MERGE_HEAD", true}, {"MERGE_MSG", true}, {"MERGE_MODE", true}, {"MERGE_RR", true}, {"SQUASH_MSG", true},
	{"AUTO_MERGE", false},
	{"CHERRY_PICK_HEAD", true}, {"REVERT_HEAD", true}, {"REBASE_HEAD", true}, {"ORIG_HEAD", false},
	{"COMMIT_EDITMSG", false},
	{"BISECT_LOG", true}, {"BISECT_NAMES", true}, {"BISECT_TERMS", true}, {"BISECT_START", true},
	{"BISECT_EXPECTED_REV", true},
	{"BISECT_ANCESTORS_OK", true}, {"BISECT_FIRST_PARENT", true}, {"BISECT_HEAD", true},
	{"info/exclude", true}, {"info/sparse-checkout", true},
}

// stateDirs are the directories of .git whose files describe an operation in progress.
var stateDirs = []string{"rebase-merge", "rebase-apply", "sequencer"}

var stateName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,99}$`)

// isState reports whether a file of a .git describes an operation in progress.
func isState(name string) bool {
	dir, file := path.Split(name)
	if slices.Contains(stateDirs, strings.TrimSuffix(dir, "/")) {
		return stateName.MatchString(file)
	}
	for _, f := range stateFiles {
		if f.name == name {
			return true
		}
	}
	return false
}

// underWay reads the files that describe an operation in progress, such as a merge. anything says
// whether an operation is in progress.
func (r *repository) underWay(lost *losses) (files map[string][]byte, anything bool) {
	files = make(map[string][]byte)
	size := 0
	take := func(name string) bool {
		raw, err := r.read(name, maxStateFile)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			return false
		}
		if size += len(raw); err == nil && (size > maxState || len(files) >= maxStateFiles) {
			err = errors.New("the files of the operation in progress are too large or too many")
		}
		if err != nil {
			lost.add(".git/%s (%v)", name, err)
			return false
		}
		files[name] = raw
		return true
	}
	for _, f := range stateFiles {
		if take(f.name) && f.significant && len(files[f.name]) > 0 {
			anything = true
		}
	}
	for _, dir := range stateDirs {
		names, err := r.list(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			lost.add(".git/%s (%v)", dir, err)
		}
		for _, name := range names {
			if isState(dir + "/" + name) {
				anything = take(dir+"/"+name) || anything
			} else {
				lost.add(".git/%s/%s, which is not a file of git", dir, name)
			}
		}
	}
	return files, anything
}

// list returns the names in a directory of .git, at most maxStateFiles.
func (r *repository) list(dir string) ([]string, error) {
	d, err := r.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, withoutPath(err)
	}
	defer d.Close()
	names, err := d.Readdirnames(maxStateFiles)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, withoutPath(err)
	}
	slices.Sort(names)
	return names, nil
}

var hexWord = regexp.MustCompile(`\b[0-9a-f]{7,64}\b`)

// named returns the words in the given files that may be full or abbreviated names of objects.
func named(files map[string][]byte) []string {
	seen := make(map[string]bool)
	var words []string
	for _, name := range sortedNames(files) {
		if strings.HasPrefix(name, "info/") || strings.HasSuffix(name, "MSG") {
			continue
		}
		for _, word := range hexWord.FindAllString(string(files[name]), -1) {
			if !seen[word] && len(words) < maxNeeds {
				seen[word] = true
				words = append(words, word)
			}
		}
	}
	return words
}

// removeUnsafe removes files that would make git run a program, to protect a person who continues
// the operation. It returns the names of these files.
func removeUnsafe(files map[string][]byte) (left []string) {
	for _, name := range sortedNames(files) {
		dir, file := path.Split(name)
		_, still := files[name]
		switch {
		case !still:
		case strings.HasPrefix(name, "BISECT_"):
			delete(files, name)
			left = append(left, name)
		case dir != "" && (isUnsafe(file, files[name])):
			for other := range files {
				if strings.HasPrefix(other, dir) {
					delete(files, other)
				}
			}
			left = append(left, strings.TrimSuffix(dir, "/"))
		}
	}
	return left
}

// isUnsafe reports whether a file of an operation in progress is unsafe: git would run a program
// that the file names, or pass extra options from the file to a program.
func isUnsafe(file string, text []byte) bool {
	switch file {
	case "opts", "strategy", "strategy_opts", "gpg_sign_opt":
		return len(strings.TrimSpace(string(text))) > 0
	case "git-rebase-todo", "todo", "git-rebase-todo.backup":
		for line := range strings.SplitSeq(string(text), "\n") {
			verb, _, _ := strings.Cut(strings.TrimSpace(line), " ")
			verb, _, _ = strings.Cut(verb, "\t")
			if verb != "" && !strings.HasPrefix(verb, "#") && !slices.Contains(quietVerbs, verb) {
				return true
			}
		}
	}
	return false
}

// quietVerbs are the commands in the list of a git rebase that run no program.
var quietVerbs = []string{
	"pick", "p", "reword", "r", "edit", "e", "squash", "s", "fixup", "f", "drop", "d", "label", "l", "reset", "t",
	"merge", "m",
	"noop", "break", "b", "update-ref", "u", "revert",
}

// recordUnkept records as lost the parts of .git that are never kept, such as hooks.
func (r *repository) recordUnkept(lost *losses) {
	hooks, _ := r.list("hooks")
	lost.addAll("the hooks", slices.DeleteFunc(hooks, func(name string) bool {
		return strings.HasSuffix(name, ".sample")
	}))
	trees, _ := r.list("worktrees")
	lost.addAll("the uncommitted changes in the worktrees", trees)
	for _, f := range []struct{ name, what string }{
		{"lfs", "the files of LFS in .git/lfs"}, {"info/attributes", "the attributes in .git/info/attributes"},
	} {
		if _, err := r.root.Lstat(f.name); err == nil {
			lost.add("%s", f.what)
		}
	}
}
