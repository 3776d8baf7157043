package workspace

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/belaydev/belay"
)

// Push says what to push, and with which login.
type Push struct {
	Composed
	// Branch is the name of the branch, without refs/heads/.
	Branch string
	// Credentials finds the login for pushes over https. The login for fetches is never used. Over
	// ssh, pushes use the keys of this process's user.
	Credentials Credentials
}

// CheckBranch returns an error for a name that cannot be the name of a branch.
func CheckBranch(name string) error {
	if !checkBranch(name) || checkRef(heads+name) != nil || isObject(name) || name[0] == '+' {
		return invalid("%q cannot be the name of a branch", shorten(name, 200))
	}
	return nil
}

// CheckPush returns an error for a repository to which Belay cannot push. repo is a name that
// [CheckRepo] accepts.
func CheckPush(repo string) error {
	at, err := Locate(repo)
	if err == nil && at.Local() {
		err = invalid("a job can push to a repository at an https or ssh address only, and not to a path of the " +
			"server: get the changes with belay workspaces apply")
	}
	return err
}

// CheckPushLogin returns an error if a push to the repository would have no login.
func CheckPushLogin(repo string, of Credentials) error {
	_, err := pushSource(repo, of)
	return err
}

// pushSource returns the source for a push, with its login.
func pushSource(repo string, of Credentials) (source, error) {
	if err := CheckPush(repo); err != nil {
		return source{}, err
	}
	src, err := parseSource(repo)
	src.user, src.password = "", ""
	if err != nil || !strings.HasPrefix(src.url, "https://") {
		return src, err
	}
	ok := false
	if of != nil {
		if src.user, src.password, ok, err = of(src.url); err != nil {
			return source{}, err
		}
	}
	if !ok {
		return source{}, &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
			"there is no credential for a push to %s (agent.push_credentials)", src)}
	}
	return src, nil
}

// pushOrder is the order for a keeper (the helper that gets the credential of a repository) to push
// a commit. Without a descriptor the keeper connects to the repository over the network.
type pushOrder struct {
	URL, User, Password string
	Authorities         []byte
	// Objects is the directory with the objects of the base, Shallow its shallow commits, and Base
	// the commit that was checked out.
	Objects string
	Shallow []byte
	Base    string
	Commit  string
	Pack    []byte
	Ref     string
}

// Push pushes a commit to a branch of the repository of w, from a git directory that Belay makes
// for this push. It checks all objects of the commit before any process gets the credential. It
// never overwrites commits of the branch: the error has CodeConflict if the branch has commits that
// the pushed commit does not contain. If the branch is at the pushed commit already, Push succeeds.
// The error wraps [ErrUnreachable] if a retry may succeed.
func (m *Manager) Push(ctx context.Context, w *Workspace, p Push) error {
	if err := CheckBranch(p.Branch); err != nil {
		return err
	}
	src, err := pushSource(w.Repo, p.Credentials)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, m.PrepareTimeout, &belay.Error{
		Code: belay.CodeUnavailable, Message: fmt.Sprintf("the push to %s took longer than %s", src, m.PrepareTimeout),
	})
	defer cancel()
	b := &base{m: m, src: src, dir: filepath.Join(m.dir, "base", w.key), keeper: m.Keeper}
	dir := b.load()
	if dir == nil {
		return fmt.Errorf("push to %s: its base clone is gone", src)
	}
	defer dir.Close()
	var peer *sshPeer
	if !strings.HasPrefix(src.url, "https://") {
		peer = newSSHPeer(ctx, &m.git, src)
		peer.program = "git-receive-pack"
	}
	err = b.push(ctx, peer, &pushOrder{
		URL: src.url, User: src.user, Password: src.password, Objects: filepath.Join(b.dir, "objects"),
		Shallow: w.shallow, Base: w.Commit, Commit: p.Commit, Pack: p.Pack, Ref: heads + p.Branch,
	})
	var complaint string
	var why error
	if peer != nil {
		complaint, why = peer.end()
	}
	return explain(src, err, complaint, why)
}

// push runs the keeper. The keeper may write only in its scratch directory, and not in the base.
func (b *base) push(ctx context.Context, peer *sshPeer, o *pushOrder) error {
	e := errand{who: "keeper", user: b.keeper, readable: []string{b.dir}, limits: b.m.Limits, limit: 1 << 20,
		order: order{Push: o}}
	e.limits.Pids = 0 // without cgroups the limit would apply to all keepers together
	defer func() { closeAll(e.files) }()
	if peer != nil {
		line, err := peer.line()
		if err != nil {
			return err
		}
		e.files = append(e.files, line)
	} else {
		e.network, e.inherit = true, remoteEnvironment
		if file := os.Getenv("SSL_CERT_FILE"); file != "" {
			o.Authorities, _ = os.ReadFile(file)
		}
	}
	t, err := b.m.start(ctx, e)
	if err != nil {
		return err
	}
	closeAll(e.files) // the peer gets an end of file only after every copy of the socket is closed
	e.files = nil
	a, err := t.wait()
	if err == nil && a.Pushed != o.Commit {
		err = errors.New("the answer of the keeper is not valid")
	}
	return err
}

// push checks the objects of a commit in a new git directory and pushes the commit from there.
func (h *helper) push(ctx context.Context, o *pushOrder) (*answer, error) {
	if len(o.Authorities) > 0 {
		h.git.authorities = filepath.Join(h.Scratch, "authorities")
		if err := writeFile(h.git.authorities, o.Authorities); err != nil {
			return nil, err
		}
	}
	at := &site{Scratch: filepath.Join(h.Scratch, "scratch"), Commit: o.Base, Shallow: o.Shallow}
	p, err := newPrivate(&h.git, at, o.Objects)
	if err != nil {
		return nil, err
	}
	defer p.remove()
	if err := p.takePack(ctx, o); err != nil {
		return nil, fmt.Errorf("the commit cannot be pushed: %w", err)
	}
	src := source{url: o.URL, user: o.User, password: o.Password}
	c := command{dir: p.dir, remote: &src, args: []string{
		"-c", "http.followRedirects=false", "push", "--porcelain", "--no-verify", "--no-follow-tags", "--no-signed",
		"--no-recurse-submodules", "--end-of-options", src.url, o.Commit + ":" + o.Ref,
	}}
	if len(h.files) > 0 {
		c.line = h.files[0]
		if _, err := c.line.WriteString(hello); err != nil {
			return nil, errors.New("the line to the repository is closed")
		}
		c.args[len(c.args)-2] = lineURL
	}
	var said bounded
	said.limit, said.full = 1<<20, func() {}
	err = h.git.pipe(ctx, c, &said)
	if err != nil {
		return nil, refusedPush(src, o, said.buf.String(), err)
	}
	return &answer{Pushed: o.Commit}, nil
}

// takePack unpacks and checks the objects of the pushed commit. No credential is in the environment
// of the programs that it runs.
func (p *private) takePack(ctx context.Context, o *pushOrder) error {
	const header = 12 // PACK, the version and the number of objects
	if len(o.Pack) > header && binary.BigEndian.Uint32(o.Pack[8:]) > 0 {
		if _, err := p.git(ctx, command{stdin: bytes.NewReader(o.Pack), args: []string{
			"index-pack", "--stdin", "--fix-thin", "--fsck-objects",
		}}); err != nil {
			return err
		}
	}
	if !p.has(ctx, o.Commit) {
		return errors.New("the commit is missing")
	}
	_, err := p.git(ctx, command{stdin: lines([]string{o.Commit, "^" + o.Base}), args: []string{
		"rev-list", "--objects", "--quiet", "--stdin",
	}})
	return err
}

// refusedPush returns the error for a push that failed. said is the output of git push --porcelain,
// whose line about a refused ref begins with an exclamation mark.
func refusedPush(src source, o *pushOrder, said string, err error) error {
	branch := strings.TrimPrefix(o.Ref, heads)
	for line := range strings.Lines(said) {
		rest, ok := strings.CutPrefix(line, "!\t")
		if !ok {
			continue
		}
		_, why, _ := strings.Cut(strings.TrimSpace(rest), "\t")
		why = brief(why)
		if strings.Contains(why, "(fetch first)") || strings.Contains(why, "(non-fast-forward)") ||
			strings.Contains(why, "(needs force)") {
			return &belay.Error{Code: belay.CodeConflict, Message: fmt.Sprintf("the branch %s of %s has other commits "+
				"already, and Belay does not overwrite commits", branch, src)}
		}
		return &belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf("%s refused the push to the branch %s: %s",
			src, branch, why), Err: err}
	}
	return &belay.Error{
		Code: belay.CodeUnavailable, Message: fmt.Sprintf("the commit cannot be pushed to %s", src), Err: err,
	}
}
