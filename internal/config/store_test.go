package config_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/belaydev/belay/internal/config"
)

const secret = "hunter2"

// Rule: the password in the URL of a database appears in no value that Belay shows and in no error.
func TestThePasswordOfTheStoreIsNotShown(t *testing.T) {
	for url, shown := range map[string]string{
		"postgres://me:hunter2@db:5432/belay":                   "postgres://me@db:5432/belay",
		"postgresql://me@db/belay?password=hunter2&sslmode=off": "postgresql://me@db/belay?sslmode=off",
		"postgres://me@db/belay":                                "postgres://me@db/belay",
		"postgres://me:hunter2@[::1/belay":                      "postgres://…",
	} {
		c, err := config.Load(config.Sources{Environ: []string{"BELAY_STORE=" + url}})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if c.StoreURL() != url || !c.Shared() {
			t.Errorf("the store is %s", c.StoreURL())
		}
		if got := config.Shown(c.StoreURL()); got != shown {
			t.Errorf("%s is shown as %s", url, got)
		}
		if text := fmt.Sprint(c.Values()); strings.Contains(text, secret) {
			t.Errorf("the values show the password: %s", text)
		}
	}
	for _, s := range []config.Sources{
		{Environ: []string{"BELAY_STORE=mysql://me:hunter2@db/x"}},
		{Flags: map[string]string{"store": "postgres://me:hunter2@db/x"}},
		{File: write(t, "store: https://me:hunter2@db/x\n")},
	} {
		if _, err := config.Load(s); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("the error of loading %v: %v", s.Flags, err)
		}
	}
}

// Rule: a password on the command line, which all users of the machine can read, is refused.
func TestAPasswordInAFlagIsRefused(t *testing.T) {
	_, err := config.Load(config.Sources{Flags: map[string]string{"store": "postgres://me:hunter2@db/x"}})
	want := "--store: everybody on this machine can read a command line; put the password in PGPASSWORD, or the " +
		"whole address in BELAY_STORE"
	if err == nil || err.Error() != want {
		t.Errorf("got  %v\nwant %s", err, want)
	}
	if _, err := config.Load(config.Sources{Flags: map[string]string{"store": "postgres://me@db/x"}}); err != nil {
		t.Error(err)
	}
}
