package jobs

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// usage returns the disk space below dir in MB. It counts the blocks of each file once, and ignores
// files that are removed while it counts.
func usage(dir string) float64 {
	type file struct{ dev, ino uint64 }
	seen := make(map[file]bool)
	var blocks int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // the file was removed meanwhile
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // the file was removed meanwhile
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		id := file{uint64(s.Dev), s.Ino} //nolint:unconvert // a 32-bit field on other systems
		if s.Nlink < 2 || d.IsDir() || !seen[id] {
			seen[id] = s.Nlink > 1 && !d.IsDir()
			blocks += s.Blocks
		}
		return nil
	})
	return float64(blocks) * 512 / 1e6
}

// share limits the cost of watch: after each measurement, watch pauses for at least share times as
// long as the measurement took.
const share = 30

// watch measures the disk space below dir from time to time. The returned function stops the
// measuring and returns the largest value.
func watch(dir string) (most func() float64) {
	stop := make(chan struct{})
	seen := make(chan float64)
	go func() {
		most := 0.0
		for {
			began := time.Now()
			most = max(most, usage(dir))
			select {
			case <-stop:
				seen <- most
				return
			case <-time.After(max(500*time.Millisecond, share*time.Since(began))):
			}
		}
	}()
	return func() float64 {
		close(stop)
		return <-seen
	}
}
