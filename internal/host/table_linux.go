package host

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strconv"
)

// environLimit is the maximum number of bytes read of a process's environment. With the usual stack
// size the kernel's own limit for arguments and environment is lower.
const environLimit = 8 << 20

// Processes reads the process table as far as this process may see it. The table is not a snapshot:
// it may lack processes that started while it was read, and may contain processes that have ended
// since.
func Processes() ([]Status, error) {
	pids, err := numbers()
	if err != nil {
		return nil, fmt.Errorf("list processes: %w", err)
	}
	table := make([]Status, 0, len(pids))
	for _, pid := range pids {
		if s, err := Lookup(pid); err == nil {
			table = append(table, s)
		}
	}
	return table, nil
}

// FindEnv returns the processes that had key in their environment when they started their program,
// with a value that match accepts. It skips processes that this process may not read, and processes
// that start or end while it reads them. Only the first occurrence of key in an environment counts.
func FindEnv(key string, match func(value string) bool) ([]Found, error) {
	self, err := Self()
	if err != nil {
		return nil, fmt.Errorf("find processes by %s: %w", key, err)
	}
	pids, err := numbers()
	if err != nil {
		return nil, fmt.Errorf("find processes by %s: %w", key, err)
	}
	var found []Found
	for _, pid := range pids {
		// The start time is read before and after the environment: if it is the same, the
		// environment and the start time belong to the same process.
		before, err := Lookup(pid)
		if err != nil {
			continue
		}
		value, ok := environ(pid, key)
		if !ok || !match(value) {
			continue
		}
		after, err := Lookup(pid)
		if err != nil || after.Start != before.Start || after.Ended() {
			continue
		}
		p := self
		p.PID, p.Start = pid, after.Start
		found = append(found, Found{Process: p, Value: value})
	}
	return found, nil
}

func environ(pid int, key string) (string, bool) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return "", false
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, environLimit))
	if err != nil {
		return "", false
	}
	for entry := range bytes.SplitSeq(raw, []byte{0}) {
		if value, ok := bytes.CutPrefix(entry, []byte(key+"=")); ok {
			return string(value), true
		}
	}
	return "", false
}

// numbers lists the process numbers in /proc.
func numbers() ([]int, error) {
	if _, err := namespace(); err != nil {
		return nil, err
	}
	dir, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	pids := make([]int, 0, len(names))
	for _, name := range names {
		if pid, err := strconv.Atoi(name); err == nil {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}
