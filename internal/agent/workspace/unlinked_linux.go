package workspace

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// file identifies a file on this machine.
type file struct{ dev, ino uint64 }

// unlinked counts removed files that processes still have open or mapped into memory, on the file
// system dev. Files in memory (tmpfs) do not count, because they are on other file systems.
// unlinked does not find a file whose only descriptor is in transit over a socket.
func unlinked(pids []int, dev uint64) (u Usage) {
	seen := make(map[file]bool)
	count := func(path string) {
		var st unix.Stat_t
		if unix.Stat(path, &st) != nil || st.Nlink > 0 || st.Dev != dev || st.Mode&unix.S_IFMT != unix.S_IFREG {
			return
		}
		if f := (file{st.Dev, st.Ino}); !seen[f] {
			seen[f] = true
			u.Files++
			u.Bytes += st.Blocks * 512
		}
	}
	for _, pid := range pids {
		dir := filepath.Join("/proc", strconv.Itoa(pid))
		// the descriptors of every thread are read, because threads can have different descriptor
		// tables
		tables, _ := filepath.Glob(dir + "/task/*/fd")
		for _, table := range tables {
			eachName(table, func(name string) { count(filepath.Join(table, name)) })
		}
		for _, name := range mappedDeleted(dir) {
			count(filepath.Join(dir, "map_files", name))
		}
	}
	return u
}

func eachName(dir string, do func(name string)) {
	d, err := os.Open(dir)
	if err != nil {
		return
	}
	defer d.Close()
	for {
		names, err := d.Readdirnames(512)
		for _, name := range names {
			do(name)
		}
		if err != nil || len(names) == 0 {
			return
		}
	}
}

// mappedDeleted lists the memory ranges of a process that map removed files.
func mappedDeleted(dir string) (ranges []string) {
	f, err := os.Open(filepath.Join(dir, "maps"))
	if err != nil {
		return nil
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if at, rest, ok := strings.Cut(lines.Text(), " "); ok && strings.HasSuffix(rest, " (deleted)") {
			ranges = append(ranges, trimZeros(at))
		}
	}
	return ranges
}

// trimZeros converts a range of addresses from /proc/PID/maps to the format of the file names in
// /proc/PID/map_files.
func trimZeros(at string) string {
	from, to, _ := strings.Cut(at, "-")
	trim := func(s string) string { return strings.TrimLeft(s[:max(len(s)-1, 0)], "0") + s[max(len(s)-1, 0):] }
	return trim(from) + "-" + trim(to)
}

// deviceOf returns the device of the file system on which a directory lies.
func deviceOf(dir string) (uint64, error) {
	var st unix.Stat_t
	if err := unix.Lstat(dir, &st); err != nil {
		return 0, err
	}
	if st.Mode&unix.S_IFMT != unix.S_IFDIR {
		return 0, errors.New("not a directory")
	}
	return st.Dev, nil
}
