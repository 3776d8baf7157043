package workspace

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"unicode"
)

// config returns the .gitconfig for the HOME of a command. With it, the commits of the command have
// the name and email of this process's user, and git never waits for a person and leaves no process
// running. It also marks a local source as safe: the source is the remote origin of the checkout
// and may belong to another user than the command. Without this mark git would refuse to read the
// source.
func (m *Manager) config(ctx context.Context, src source) []byte {
	name, email := m.identity(ctx)
	safe := ""
	if src.local {
		safe = fmt.Sprintf("[safe]\n\tdirectory = %s\n\tdirectory = %s\n", quote(src.url),
			quote(filepath.Join(src.url, ".git")))
	}
	return []byte(fmt.Sprintf("[user]\n\tname = %s\n\temail = %s\n", quote(name), quote(email)) +
		"[init]\n\tdefaultBranch = main\n[commit]\n\tgpgSign = false\n[tag]\n\tgpgSign = false\n" +
		"[advice]\n\tdetachedHead = false\n[gc]\n\tauto = 0\n[maintenance]\n\tauto = false\n[core]\n\tfsmonitor = " +
		"false\n" +
		"[protocol \"ext\"]\n\tallow = never\n" + safe)
}

// identity returns the name and email in the git configuration of this process's user.
func (m *Manager) identity(ctx context.Context) (name, email string) {
	name, email = "belay", "belay@localhost"
	if m.git.bin == "" {
		return name, email
	}
	cmd := exec.CommandContext(ctx, m.git.bin, "config", "--global", "--includes", "--null", "--get-regexp",
		`^user\.(name|email)$`)
	cmd.Dir = m.git.home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C", "GIT_CONFIG_NOSYSTEM=1", "HOME=" + homeOfUser(),
		"XDG_CONFIG_HOME=" + os.Getenv("XDG_CONFIG_HOME")}
	out, err := cmd.Output()
	if err != nil {
		return name, email // the user has configured neither name nor email
	}
	for entry := range bytes.SplitSeq(out, []byte{0}) {
		key, value, ok := strings.Cut(string(entry), "\n")
		if !ok || strings.TrimSpace(value) == "" || strings.ContainsFunc(value, unicode.IsControl) {
			continue
		}
		switch key {
		case "user.name":
			name = value
		case "user.email":
			email = value
		}
	}
	return name, email
}

func homeOfUser() string {
	if home := os.Getenv("HOME"); home != "" {
		return home
	}
	if u, err := user.Current(); err == nil {
		return u.HomeDir
	}
	return ""
}

// quote quotes a value, or the name of a section, for git's configuration.
func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}
