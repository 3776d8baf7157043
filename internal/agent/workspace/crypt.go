package workspace

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"github.com/belaydev/belay"
)

// unlock decrypts a fresh checkout with git-crypt, if a key is configured. It runs before the
// command starts, so the command has not changed any file yet. It executes only the git-crypt in
// this process's PATH, and git with that git-crypt as its filter. If the key could not be read,
// noKey says why.
func unlock(ctx context.Context, g *git, at *site, repo, noKey string) error {
	switch {
	case at.CryptKey == "" && noKey == "" || !encrypted(at.Dir):
		return nil
	case noKey != "":
		return &belay.Error{Code: belay.CodeInvalid, Message: "the git-crypt key cannot be read: " + noKey}
	}
	if err := g.crypt(ctx, at.Dir, filepath.Join(at.Dir, ".git"), "unlock", at.CryptKey); err != nil {
		return fmt.Errorf("unlock %s: %w", repo, err)
	}
	return nil
}

// encrypted reports whether the .gitattributes of a checkout name git-crypt. Without such
// attributes git-crypt would report that the checkout is already unlocked.
func encrypted(dir string) bool {
	raw, err := readRegular(filepath.Join(dir, ".gitattributes"), maxRules)
	if err == nil && strings.Contains(string(raw), "filter=git-crypt") {
		return true
	}
	below, err := filepath.Glob(filepath.Join(dir, "*", ".gitattributes"))
	if err != nil {
		return false
	}
	for _, path := range below {
		if raw, err := readRegular(path, maxRules); err == nil && strings.Contains(string(raw), "filter=git-crypt") {
			return true
		}
	}
	return false
}

// crypt runs git-crypt on a work tree of this package, without any user's git configuration.
func (g *git) crypt(ctx context.Context, tree, dir string, args ...string) error {
	bin, err := exec.LookPath("git-crypt")
	if err != nil {
		return &belay.Error{
			Code:    belay.CodeUnavailable,
			Message: "git-crypt is not installed, or not on PATH; a repository that is encrypted needs it", Err: err,
		}
	}
	cmd := exec.CommandContext(ctx, bin, args...)
	cmd.Dir = tree
	cmd.Env = append(g.environment(command{}), "GIT_DIR="+dir, "GIT_WORK_TREE="+tree)
	for i, setting := range hardened {
		key, value, _ := strings.Cut(setting, "=")
		n := strconv.Itoa(i)
		cmd.Env = append(cmd.Env, "GIT_CONFIG_KEY_"+n+"="+key, "GIT_CONFIG_VALUE_"+n+"="+value)
	}
	cmd.Env = append(cmd.Env, "GIT_CONFIG_COUNT="+strconv.Itoa(len(hardened)))
	cmd.SysProcAttr = ownGroup()
	said := &tail{}
	cmd.Stdout, cmd.Stderr = said, said
	runtime.LockOSThread() // the kernel sends Pdeathsig when the thread that started the process ends
	defer runtime.UnlockOSThread()
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return &belay.Error{
			Code: belay.CodeInvalid, Message: fmt.Sprintf("git-crypt %s: %s", args[0], said.text(nil)), Err: err,
		}
	}
	return nil
}

// crypt configures a private git directory so that git encrypts files of the work tree with the key
// and the git-crypt of this process. So git runs no program that the workspace names, and a file
// that the repository stores encrypted is also encrypted in the bundle and the patch.
func (p *private) crypt() error {
	if p.at.CryptKey == "" {
		return nil
	}
	bin, err := exec.LookPath("git-crypt")
	if err != nil {
		return nil //nolint:nilerr // without git-crypt no checkout was unlocked
	}
	key, err := os.ReadFile(p.at.CryptKey)
	if err != nil {
		return fmt.Errorf("read the git-crypt key: %w", err)
	}
	keys := filepath.Join(p.dir, "git-crypt", "keys")
	if err := os.MkdirAll(keys, 0o700); err != nil {
		return err
	}
	if err := writeFile(filepath.Join(keys, "default"), key); err != nil {
		return err
	}
	config, err := os.OpenFile(filepath.Join(p.dir, "config"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return err
	}
	// The configuration has no other filter, so git runs no filter that the attributes name.
	_, err = fmt.Fprintf(config, "[filter \"git-crypt\"]\n\tclean = %s\n\trequired = true\n",
		quote("'"+strings.ReplaceAll(bin, "'", `'\''`)+"' clean"))
	return errors.Join(err, config.Close())
}
