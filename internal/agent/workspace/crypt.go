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

// unlock decrypts a fresh checkout with git-crypt, if there is a key. Nothing of a
// command has been there yet; what is run is git-crypt, from this process's PATH, and
// its filters. noKey says why there is no key where there should be one.
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

// encrypted tells whether the attributes of a checkout ask for git-crypt anywhere. A
// repository without would be taken for one that is unlocked already.
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

// crypt runs git-crypt in a work tree of ours, away from everybody's configuration.
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
	runtime.LockOSThread() // the signal at our death follows the thread that started the process
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

// crypt has a private git directory encrypt what the work tree holds in the clear,
// with our key and our git-crypt: nothing that the workspace names is run, and what
// was encrypted in the repository is so in what is kept of it.
func (p *private) crypt() error {
	if p.at.CryptKey == "" {
		return nil
	}
	bin, err := exec.LookPath("git-crypt")
	if err != nil {
		return nil //nolint:nilerr // then no checkout was unlocked either
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
	// Any other filter that the attributes name is not configured here, and not run.
	_, err = fmt.Fprintf(config, "[filter \"git-crypt\"]\n\tclean = %s\n\trequired = true\n",
		quote("'"+strings.ReplaceAll(bin, "'", `'\''`)+"' clean"))
	return errors.Join(err, config.Close())
}
