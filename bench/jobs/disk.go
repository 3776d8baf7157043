package jobs

import (
	"io/fs"
	"path/filepath"
	"syscall"
	"time"
)

// usage is what is below dir in MB, by blocks, each file once. What goes away
// meanwhile does not count.
func usage(dir string) float64 {
	type file struct{ dev, ino uint64 }
	seen := make(map[file]bool)
	var blocks int64
	_ = filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		info, err := d.Info()
		if err != nil {
			return nil //nolint:nilerr // it is gone
		}
		s, ok := info.Sys().(*syscall.Stat_t)
		if !ok {
			return nil
		}
		if id := (file{uint64(s.Dev), s.Ino}); s.Nlink < 2 || d.IsDir() ||
			!seen[id] { //nolint:unconvert // of 32 bits elsewhere
			seen[id] = s.Nlink > 1 && !d.IsDir()
			blocks += s.Blocks
		}
		return nil
	})
	return float64(blocks) * 512 / 1e6
}

// share is how much of the time may go into looking: one part in so many.
const share = 30

// watch looks at what is below dir now and then until the function that it returns
// is called, which gives the most that was seen.
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
