//go:build linux

package process

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkWalls measures how much longer a run takes with the walls of the sandbox (its
// restrictions) than without.
func BenchmarkWalls(b *testing.B) {
	dir := b.TempDir()
	for _, name := range []string{"own/tmp", "home/bin"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			b.Fatal(err)
		}
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, kind := range isolations() {
		for _, walls := range []struct {
			name  string
			build func(c *Command)
		}{
			{"none", func(*Command) {}},
			{"seal", func(c *Command) { c.Writable, c.Tmp = []string{at("own")}, at("own/tmp") }},
			{"seal-hidden-proxied", func(c *Command) {
				c.Writable, c.Tmp, c.Hidden, c.Readable = []string{at("own")}, at("own/tmp"), []string{at("home")},
					[]string{at("home/bin")}
				c.Network, c.ProxyToken, c.Proxy = ProxiedNetwork, "a-token-of-this-run-alone", func(l net.Listener) {
					for {
						if _, err := l.Accept(); err != nil {
							return
						}
					}
				}
			}},
		} {
			b.Run(strings.ReplaceAll(string(kind), " ", "-")+"/"+walls.name, func(b *testing.B) {
				for b.Loop() {
					c := Command{ID: "bench", Args: []string{"/bin/true"}, Dir: at("own"), Isolation: kind}
					walls.build(&c)
					if r, err := Run(b.Context(), c); err != nil || r.Code != 0 {
						b.Fatal(r, err)
					}
				}
			})
		}
	}
}
