//go:build linux

package workspace

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// replaceByPipe replaces a file by a named pipe, so that a process that opens the file blocks.
func replaceByPipe(t *testing.T, path string) {
	t.Helper()
	remove(t, path)
	if err := syscall.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
}

// tooLate is part of the error of a Prepare that exceeds its time limit.
const tooLate = "was not made within 2s"

// Rule: if reading a file of the source blocks, or takes too long, Prepare fails within its time
// limit and leaves no files.
func TestSourcesThatHang(t *testing.T) {
	for name, tt := range map[string]struct {
		set  func(t *testing.T, src string)
		code belay.Code
		want string
	}{
		"HEAD": {func(t *testing.T, src string) {
			replaceByPipe(t, filepath.Join(src, ".git", "HEAD"))
		}, belay.CodeInvalid, "its HEAD is not a regular file"},
		"config": {func(t *testing.T, src string) {
			replaceByPipe(t, filepath.Join(src, ".git", "config"))
		}, belay.CodeInvalid, "its config is not a regular file"},
		"packed-refs": {func(t *testing.T, src string) {
			replaceByPipe(t, filepath.Join(src, ".git", "packed-refs"))
		}, belay.CodeInvalid, "its packed-refs is not a regular file"},
		"a branch": {func(t *testing.T, src string) {
			replaceByPipe(t, filepath.Join(src, ".git", "refs", "heads", "main"))
		}, belay.CodeUnavailable, tooLate},
		"refs of 2 GB": {func(t *testing.T, src string) {
			write(t, filepath.Join(src, ".git", "packed-refs"), "# pack-refs with: peeled fully-peeled sorted \n")
			if err := os.Truncate(filepath.Join(src, ".git", "packed-refs"), 2<<30); err != nil {
				t.Fatal(err)
			}
		}, belay.CodeUnavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			m, src := open(t), repo(t)
			m.Limits.Memory = 1 << 30
			if tt.want == tooLate {
				m.PrepareTimeout = 2 * time.Second
			}
			tt.set(t, src)
			_, err := m.Prepare(t.Context(), Spec{ID: "run_1", Repo: src})
			if text := wantCode(t, err, tt.code); !strings.Contains(text, tt.want) {
				t.Error(text)
			}
			for _, sub := range []string{"jobs", "scratch"} {
				if left, _ := os.ReadDir(filepath.Join(m.dir, sub)); len(left) > 0 {
					t.Errorf("left in %s: %v", sub, left)
				}
			}
		})
	}
}

// Rule: a remote repository that does not answer makes Prepare fail within PrepareTimeout.
func TestRemoteThatHangs(t *testing.T) {
	r := serve(t, repo(t))
	over := make(chan struct{})
	hanging := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-over }))
	hanging.TLS = r.TLS.Clone()
	hanging.StartTLS()
	defer hanging.Close()
	defer close(over)
	m := open(t)
	m.PrepareTimeout = 2 * time.Second
	began := time.Now()
	_, err := m.Prepare(t.Context(), Spec{ID: "run_1", Repo: hanging.URL + "/x.git"})
	if text := wantCode(t, err, belay.CodeUnavailable); !strings.Contains(text, tooLate) ||
		time.Since(began) > 30*time.Second {
		t.Errorf("%s, after %s", text, time.Since(began))
	}
}

// Rule: Prepare uses a base (a clone cached by an earlier call) only for a caller who could fetch
// the repository. It does not use the base for a caller with other credentials, or for a repository
// that another user has put at the same path.
func TestWarmBaseServesOnlyCallersWithAccess(t *testing.T) {
	src := repo(t)
	r, m := serve(t, src), open(t)
	w := prepare(t, m, Spec{Repo: r.urlWith(rightUser)})
	for _, userinfo := range []string{"jo:wr0ng", "other", "jo"} {
		for _, spec := range []Spec{{}, {Commit: w.Commit}} {
			spec.ID, spec.Repo = "run_1", r.urlWith(userinfo)
			_, err := m.Prepare(t.Context(), spec)
			wantCode(t, err, belay.CodeUnavailable)
		}
	}
	_, err := m.Prepare(t.Context(), Spec{ID: "run_1", Repo: r.URL + "/bare.git", Commit: w.Commit})
	wantCode(t, err, belay.CodeUnavailable)

	asRoot(t)
	private := prepare(t, m, Spec{Repo: src})
	remove(t, src)
	run(t, "/", "init", "-q", "-b", "main", src)
	commit(t, src, "of another")
	chownAll(t, src, stranger)
	_, err = m.Prepare(t.Context(), Spec{ID: "run_1", Repo: src, Commit: private.Commit})
	wantCode(t, err, belay.CodeNotFound)
}

// Rule: if a source contains a symbolic link that leads out of the source, the link is followed
// with the rights of the user who owns the link. So the link gives that user no access to a file
// that this user could not read before.
func TestLinksOutOfASourceRevealNothing(t *testing.T) {
	asRoot(t)
	private := repo(t) // below a directory that only root may enter
	write(t, filepath.Join(private, "private.txt"), "of root\n")
	secret := commit(t, private, "of root")
	for name, set := range map[string]func(t *testing.T, dir string){
		"a file for .git": func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, ".git"))
			write(t, filepath.Join(dir, ".git"), "gitdir: "+filepath.Join(private, ".git")+"\n")
		},
		"a link for .git": func(t *testing.T, dir string) {
			remove(t, filepath.Join(dir, ".git"))
			if err := os.Symlink(filepath.Join(private, ".git"), filepath.Join(dir, ".git")); err != nil {
				t.Fatal(err)
			}
		},
		"a common directory": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".git", "commondir"), filepath.Join(private, ".git")+"\n")
		},
		"alternates": func(t *testing.T, dir string) {
			write(t, filepath.Join(dir, ".git", "objects", "info", "alternates"), filepath.Join(private, ".git",
				"objects")+"\n")
			write(t, filepath.Join(dir, ".git", "refs", "heads", "stolen"), secret+"\n")
		},
	} {
		for _, uid := range []int{stranger, 0} {
			t.Run(name+map[int]string{0: " of root's"}[uid], func(t *testing.T) {
				m := open(t)
				giveUsers(t, m)
				theirs := filepath.Join(publicDir(t), "repo")
				if err := os.CopyFS(theirs, os.DirFS(repo(t))); err != nil {
					t.Fatal(err)
				}
				set(t, theirs)
				chownAll(t, theirs, uid)
				for _, ref := range []string{"", "stolen", secret} {
					w, err := m.Prepare(t.Context(), allowedOnly(Spec{ID: "run_1", Repo: theirs, Ref: ref}))
					if err != nil {
						continue
					}
					if _, err := os.Stat(filepath.Join(w.Dir, "private.txt")); err == nil {
						t.Errorf("with ref %q the job can read the repository of root", ref)
					}
					if err := w.Remove(context.Background()); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	}
}

// Rule: the keeper (the unprivileged user that fetches) reads repositories of root, even below a
// directory that other users cannot enter. If other users cannot read the repository itself, the
// error says which chmod allows it.
func TestRootsRepositories(t *testing.T) {
	asRoot(t)
	m, src := open(t), repo(t)
	giveUsers(t, m)
	closed := filepath.Dir(src)
	if err := os.Chmod(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	prepare(t, m, Spec{Repo: src})
	bare := filepath.Join(closed, "bare.git")
	run(t, "/", "clone", "-q", "--bare", src, bare)
	prepare(t, m, Spec{Repo: bare})
	if err := os.Chmod(filepath.Join(src, ".git"), 0o700); err != nil {
		t.Fatal(err)
	}
	commit(t, src, "more")
	_, err := m.Prepare(t.Context(), Spec{ID: "run_1", Repo: src})
	if text := wantCode(t, err, belay.CodeForbidden); !strings.Contains(text, "chmod -R o+rX") ||
		!strings.Contains(text, "user 1700000000") {
		t.Error(text)
	}
}

// Rule: to fetch over ssh, this process itself runs ssh, with the arguments that git would use. The
// error of a failed fetch contains the error output of ssh.
func TestFetchOverSSH(t *testing.T) {
	m, src := open(t), repo(t)
	bin := t.TempDir()
	log := filepath.Join(bin, "log")
	write(t, filepath.Join(bin, "ssh"), `#!/bin/sh
printf '%s\n' "$@" "$GIT_PROTOCOL" >>`+log+`
for last; do :; done
case "$last" in *nowhere*) echo "Permission denied (publickey)." >&2; exit 255;; *away*) echo "ssh: connect to host away port 22: Connection refused" >&2; exit 255;; esac
exec sh -c "$last"
`)
	if err := os.Chmod(filepath.Join(bin, "ssh"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	w := prepare(t, m, Spec{Repo: "ssh://jo@example.com:2222" + src})
	if want := run(t, src, "rev-parse", "main"); w.Commit != want || w.Repo != "ssh://jo@example.com:2222"+src {
		t.Errorf("%s of %s, want %s", w.Commit, w.Repo, want)
	}
	raw, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"-oBatchMode=yes", "-oConnectTimeout=30", "-oServerAliveInterval=15", "-oSendEnv=GIT_PROTOCOL", "-p", "2222",
		"jo@example.com",
		"git-upload-pack '" + src + "'", "version=2", "",
	}, "\n")
	if diff := cmp.Diff(want+want, string(raw)); diff != "" { // the first ssh lists the refs, and the second fetches
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = m.Prepare(t.Context(), Spec{ID: "run_1", Repo: "git@example.com:nowhere"})
	if text := wantCode(t, err, belay.CodeUnavailable); !strings.Contains(text, "Permission denied (publickey)") ||
		errors.Is(err, ErrUnreachable) {
		t.Error(text)
	}
	_, err = m.Prepare(t.Context(), Spec{ID: "run_1", Repo: "git@example.com:away"})
	if text := wantCode(t, err, belay.CodeUnavailable); !strings.Contains(text, "Connection refused") ||
		!errors.Is(err, ErrUnreachable) {
		t.Error(text)
	}
}

// Rule: sshArguments returns the arguments that git would give to ssh.
func TestSSHArguments(t *testing.T) {
	for _, tt := range []struct{ url, host, command, port string }{
		{"git@example.com:org/x.git", "git@example.com", "git-upload-pack 'org/x.git'", ""},
		{"host:x", "host", "git-upload-pack 'x'", ""},
		{"ssh://git@example.com/org/x.git", "git@example.com", "git-upload-pack '/org/x.git'", ""},
		{"ssh://example.com/~jo/x", "example.com", "git-upload-pack '~jo/x'", ""},
		{"ssh://example.com:22/it's%20x!", "example.com", `git-upload-pack '/it'\''s x'\!''`, "22"},
		{"ssh://jo@[::1]:2222/x", "jo@::1", "git-upload-pack '/x'", "2222"},
	} {
		args, err := sshArguments(tt.url, "git-upload-pack")
		if err != nil {
			t.Errorf("%s: %v", tt.url, err)
			continue
		}
		want := []string{tt.host, tt.command}
		if tt.port != "" {
			want = append([]string{"-p", tt.port}, want...)
		}
		if diff := cmp.Diff(want, args[4:]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.url, diff)
		}
	}
}
