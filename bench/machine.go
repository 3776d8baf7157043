package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"
)

// describe returns a description of the machine, in lines.
func describe() []string {
	lines := []string{
		fmt.Sprintf("%s, %d processors, %s/%s, %s", field("/proc/cpuinfo", "model name"), runtime.NumCPU(),
			runtime.GOOS, runtime.GOARCH, runtime.Version()),
	}
	var u syscall.Utsname
	kernel := ""
	if err := syscall.Uname(&u); err == nil {
		for _, c := range u.Release {
			if c == 0 {
				break
			}
			kernel += string(rune(c))
		}
	}
	return append(lines, fmt.Sprintf("Linux %s, memory %s, %s, load %s", kernel, field("/proc/meminfo", "MemTotal"),
		time.Now().UTC().Format(time.DateTime+" MST"), load()))
}

// field returns the first value of a field in a file of /proc.
func field(file, name string) string {
	text, err := os.ReadFile(file)
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(text)) {
		if k, v, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(k) == name {
			return strings.TrimSpace(v)
		}
	}
	return "unknown"
}

// load returns the load averages over the last one, five and fifteen minutes.
func load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if f := strings.Fields(string(text)); err == nil && len(f) > 2 {
		return strings.Join(f[:3], " ")
	}
	return "unknown"
}

// versions returns the versions of the measured modules, and of git if jobs are measured.
func (b *bed) versions(ctx context.Context) map[string]string {
	found := modules()
	if b.repo == "" {
		return found
	}
	if out, err := exec.CommandContext(ctx, "git", "version").Output(); err == nil {
		found["git"] = strings.TrimPrefix(strings.TrimSpace(string(out)), "git version ")
	}
	return found
}

// modules returns the versions of the measured modules.
func modules() map[string]string {
	wanted := map[string]string{
		"github.com/riverqueue/river": "river", "github.com/dbos-inc/dbos-transact-golang": "dbos",
		"github.com/jackc/pgx/v5": "pgx", "modernc.org/sqlite": "modernc.org/sqlite",
	}
	found := make(map[string]string)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return found
	}
	for _, m := range info.Deps {
		if name := wanted[m.Path]; name != "" {
			found[name] = m.Version
		}
	}
	return found
}
