package workspace

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/belaydev/belay/internal/host"
)

// Info describes a workspace.
type Info struct {
	ID   string `json:"id"`
	Path string `json:"path"`
	Repo string `json:"repo,omitempty"`
	// Commit is the commit that was checked out.
	Commit string    `json:"commit,omitempty"`
	Made   time.Time `json:"made"`
	// Owner is the process that made the workspace and owns it.
	Owner host.Process `json:"owner"`
	// UID is the workspace's own user; 0 if the workspace has the user of its owner process.
	UID uint32 `json:"uid,omitempty"`
	// InUse is false if the owner is proven dead.
	InUse bool `json:"in_use"`
	Usage
}

// List describes all workspaces in the directory, of all processes, in the order of their IDs.
func (m *Manager) List(ctx context.Context) ([]Info, error) {
	jobs := filepath.Join(m.dir, "jobs")
	entries, err := os.ReadDir(jobs)
	if err != nil {
		return nil, fmt.Errorf("list workspaces: %w", err)
	}
	var all []Info
	for _, e := range entries {
		root := filepath.Join(jobs, e.Name())
		if strings.HasPrefix(e.Name(), ".") {
			continue
		}
		var user *host.User
		i := Info{ID: e.Name(), Path: filepath.Join(root, "checkout")}
		if o, err := readOwner(root); err == nil {
			i.ID, i.Repo, i.Commit, i.Made, i.Owner = o.ID, o.Repo, o.Commit, o.Made, o.Process
			if user = o.User; user != nil {
				i.UID = user.UID
			}
		}
		i.InUse = m.liveAt(e.Name()) != nil || !m.abandoned(root)
		if i.Usage, err = measure(ctx, root, Quota{}, user); err != nil {
			return all, fmt.Errorf("list workspaces: %w", err)
		}
		all = append(all, i)
	}
	slices.SortFunc(all, func(a, b Info) int { return strings.Compare(a.ID, b.ID) })
	return all, nil
}

// BaseInfo describes a base, the cached clone of a repository.
type BaseInfo struct {
	// Repo is empty if the base is incomplete.
	Repo    string    `json:"repo,omitempty"`
	Path    string    `json:"path"`
	Branch  string    `json:"branch,omitempty"`
	Fetched time.Time `json:"fetched"`
	Used    time.Time `json:"used"`
	// InUse says that a process is fetching or copying the base right now.
	InUse bool `json:"in_use"`
	Usage
}

// Bases describes all base clones.
func (m *Manager) Bases() ([]BaseInfo, error) {
	locks, err := filepath.Glob(filepath.Join(m.dir, "base", "*.lock"))
	if err != nil {
		return nil, fmt.Errorf("list bases: %w", err)
	}
	var all []BaseInfo
	for _, lock := range locks {
		dir := strings.TrimSuffix(lock, ".lock")
		if info, err := os.Lstat(dir); err != nil || !info.IsDir() {
			continue
		}
		b := BaseInfo{Path: dir, InUse: !free(lock) || !free(dir+".use")}
		var s state
		if raw, err := os.ReadFile(dir + stateFile); err == nil && json.Unmarshal(raw, &s) == nil {
			b.Repo, b.Fetched, b.Branch = s.Repo, s.Fetched, strings.TrimPrefix(s.Head, "refs/heads/")
		}
		b.Used = b.Fetched
		if info, err := os.Lstat(dir + ".use"); err == nil && info.ModTime().After(b.Used) {
			b.Used = info.ModTime()
		}
		if b.Usage, err = measure(context.Background(), dir, Quota{}, nil); err != nil {
			return all, fmt.Errorf("list bases: %w", err)
		}
		all = append(all, b)
	}
	return all, nil
}
