package workspace

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Limits for the part of HOME that is saved.
const (
	maxHome        = 32 << 20 // bytes of all files
	maxHomeFile    = 16 << 20
	maxHomeEntries = 20_000
	maxHomeDepth   = 64
)

// caches are paths in HOME of directories that programs can make again. cacheNames are names of
// such directories at any depth.
var (
	caches = []string{
		".cache", ".npm", ".pnpm-store", ".yarn/berry/cache", ".bun/install/cache", ".local/share/pnpm",
		".local/share/Trash", ".local/state/nix",
		"go/pkg", ".cargo/registry", ".cargo/git", ".rustup/toolchains", ".rustup/downloads", ".rustup/tmp",
		".gradle/caches", ".gradle/wrapper/dists",
		".gradle/daemon", ".m2/repository", ".ivy2/cache", ".sbt/boot", ".nuget/packages", ".conda/pkgs", ".deno",
		".gem", ".bundle/cache", ".composer/cache",
		".android/cache", ".nv", ".vscode-server", "Library/Caches",
	}
	cacheNames = []string{"node_modules", "__pycache__", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)

// cacheTag is the beginning of a file CACHEDIR.TAG, which says that its directory is a cache
// (https://bford.info/cachedir/).
const cacheTag = "Signature: 8a477f597d28d172789f06886806bc55"

// belonging is a file, directory or symbolic link in HOME that may be saved.
type belonging struct {
	name string
	info fs.FileInfo
	link string // the target of a symbolic link
}

// saveHome packs the contents of HOME into an archive: regular files, directories, and symbolic
// links that lead to paths in HOME.
func (s *salvage) saveHome(ctx context.Context) error {
	if s.at.MostHome <= 0 {
		return nil
	}
	if info, err := os.Lstat(s.at.Home); err != nil || !info.IsDir() {
		return errors.New("HOME is not the directory that Belay made")
	}
	root, err := os.OpenRoot(s.at.Home)
	if err != nil {
		return withoutPath(err)
	}
	defer root.Close()
	h := &packer{ctx: ctx, at: s.at, root: root, lost: &s.homeLost}
	h.look(".")
	h.fit()
	if s.out.Home, err = h.pack(); err != nil {
		return err
	}
	h.lost.addAll("of HOME", h.left)
	return nil
}

// packer writes the archive of HOME.
type packer struct {
	ctx  context.Context
	at   *site
	root *os.Root
	lost *losses

	seen int
	all  []belonging
	left []string // files that the archive omits, each with the reason
}

func (h *packer) leave(name, format string, args ...any) {
	h.left = append(h.left, printable(name)+" ("+fmt.Sprintf(format, args...)+")")
}

// look records the entries of a directory and of all directories below it.
func (h *packer) look(dir string) {
	d, err := h.root.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NONBLOCK, 0)
	if err != nil {
		h.leave(dir, "%v", withoutPath(err))
		return
	}
	entries, err := d.ReadDir(maxHomeEntries + 1)
	_ = d.Close()
	if err != nil && !errors.Is(err, io.EOF) {
		h.leave(dir, "%v", withoutPath(err))
	}
	slices.SortFunc(entries, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	for _, e := range entries {
		switch h.seen++; {
		case h.seen == maxHomeEntries:
			h.leave(dir, "only %d files of HOME are looked at", maxHomeEntries)
		case h.seen < maxHomeEntries && h.ctx.Err() == nil:
			h.take(path.Join(dir, e.Name()))
		}
	}
}

// take records one entry of a directory.
func (h *packer) take(name string) {
	info, err := h.root.Lstat(name)
	if err != nil {
		return // another process has removed the file
	}
	b := belonging{name: name, info: info}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch foreign := ok && h.at.Own && stat.Uid != h.at.User; {
	case info.IsDir() && strings.Count(name, "/") > maxHomeDepth:
		h.leave(name, "more than %d directories in each other", maxHomeDepth)
	case info.IsDir():
		if !h.cache(name) {
			h.all = append(h.all, b)
			h.look(name)
		}
	case foreign:
		h.leave(name, "it belongs to another user")
	case info.Mode()&fs.ModeSymlink != 0:
		target, err := h.root.Readlink(name)
		if err == nil {
			b.link, err = inside(h.at.Home, name, target)
		}
		if err != nil {
			h.leave(name, "%v", err)
			return
		}
		h.all = append(h.all, b)
	case !info.Mode().IsRegular():
		if info.Mode()&fs.ModeSocket == 0 { // a socket is useless without its process
			h.leave(name, "%v", errNotRegular)
		}
	case info.Size() > maxHomeFile:
		h.leave(name, "%s", mib(info.Size()))
	default:
		h.all = append(h.all, b)
	}
}

// cache reports whether a directory is known to be a cache.
func (h *packer) cache(name string) bool {
	if slices.Contains(caches, name) || slices.Contains(cacheNames, path.Base(name)) {
		return true
	}
	f, _, err := openIn(h.root, name+"/CACHEDIR.TAG")
	if err != nil {
		return false
	}
	defer f.Close()
	head := make([]byte, len(cacheTag))
	_, err = io.ReadFull(f, head)
	return err == nil && string(head) == cacheTag
}

// inside returns the target of a symbolic link in the form in which the archive stores it:
// relative, and within HOME.
func inside(home, name, target string) (string, error) {
	if path.IsAbs(target) {
		below, ok := strings.CutPrefix(path.Clean(target), path.Clean(home)+"/")
		if !ok {
			return "", errors.New("it leads out of HOME")
		}
		target = strings.Repeat("../", strings.Count(name, "/")) + below
	}
	if to := path.Join(path.Dir(name), target); to == ".." || strings.HasPrefix(to, "../") || target == "" {
		return "", errors.New("it leads out of HOME")
	}
	return target, nil
}

// fit removes the largest files from the list, until the remaining files have at most MostHome
// bytes together.
func (h *packer) fit() {
	var total int64
	var files []int
	for i, b := range h.all {
		if b.info.Mode().IsRegular() {
			total += b.info.Size()
			files = append(files, i)
		}
	}
	slices.SortStableFunc(files, func(a, b int) int { return int(h.all[b].info.Size() - h.all[a].info.Size()) })
	out := make(map[int]bool)
	for _, i := range files {
		if total <= h.at.MostHome {
			break
		}
		total -= h.all[i].info.Size()
		out[i] = true
		h.leave(h.all[i].name, "HOME has more than %s", mib(h.at.MostHome))
	}
	var keep []belonging
	for i, b := range h.all {
		if !out[i] {
			keep = append(keep, b)
		}
	}
	h.all = keep
}

// pack returns the archive of HOME; nil if HOME has only the files that Belay itself wrote. From
// the same files it always makes the same bytes.
func (h *packer) pack() ([]byte, error) {
	var out bytes.Buffer
	z, err := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	if err != nil {
		return nil, err
	}
	w, some := tar.NewWriter(z), false
	for _, b := range h.all {
		if h.ctx.Err() != nil {
			return nil, context.Cause(h.ctx)
		}
		head := &tar.Header{Name: b.name, Mode: int64(b.info.Mode().Perm()), Format: tar.FormatPAX}
		var data []byte
		switch mode := b.info.Mode(); {
		case mode.IsDir():
			head.Typeflag, head.Name = tar.TypeDir, b.name+"/"
		case mode&fs.ModeSymlink != 0:
			head.Typeflag, head.Linkname, head.Mode, some = tar.TypeSymlink, b.link, 0o777, true
		default:
			if data, err = readIn(h.root, b.name, maxHomeFile); err != nil {
				h.leave(b.name, "%v", err)
				continue
			}
			if b.name == ".gitconfig" && sha256.Sum256(data) == h.at.HomeConfig {
				continue
			}
			head.Typeflag, head.Size, head.ModTime, some = tar.TypeReg, int64(len(data)), b.info.ModTime(), true
		}
		if err := w.WriteHeader(head); err != nil { // the archive format cannot store this name
			h.leave(b.name, "%v", err)
			continue
		}
		if _, err := w.Write(data); err != nil {
			return nil, err
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil || !some {
		return nil, err
	}
	return out.Bytes(), nil
}
