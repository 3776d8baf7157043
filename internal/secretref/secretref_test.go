package secretref

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/reach"
)

func store(t *testing.T, rules ...string) *Store {
	t.Helper()
	s, err := Parse(rules)
	if err != nil {
		t.Fatal(err)
	}
	s.Log = slog.New(slog.DiscardHandler)
	s.Env = func(name string) string { return map[string]string{"TOKEN": "t0ken-value", "PROD": "prod-value"}[name] }
	return s
}

// Rule: references are replaced by the secrets, an escaped reference stands for itself, and all other
// text stays as it is.
func TestReferencesAreResolved(t *testing.T) {
	c := store(t, "TOKEN for http", "OTHER from env:PROD for *").Scope("http")
	for text, want := range map[string]string{
		"":                                      "",
		"plain $ { {{ }} $$ text":               "plain $ { {{ }} $$ text",
		"Bearer ${{ secrets.TOKEN }}":           "Bearer t0ken-value",
		"${{secrets.TOKEN}}${{ secrets.OTHER}}": "t0ken-valueprod-value",
		"$${{ secrets.TOKEN }}":                 "${{ secrets.TOKEN }}",
		"a$${{b${{ secrets.TOKEN }}":            "a${{bt0ken-value",
		Escape("${{ secrets.TOKEN }} $${{"):     "${{ secrets.TOKEN }} $${{",
	} {
		got, err := c.Resolve(text)
		if err != nil || got != want {
			t.Errorf("%q is %q, %v; want %q", text, got, err, want)
		}
	}
	for _, text := range []string{
		"${{ TOKEN }}", "${{ secrets.TOKEN", "${{ secrets. }}", "${{ secrets.A-B }}", "${{ env.TOKEN }}", "${{",
		"${{ secrets.TOKEN + secrets.OTHER }}", "${{ ${{ secrets.TOKEN }} }}", "${{ secrets.TOKEN\x00 }}",
	} {
		if got, err := c.Resolve(text); !belay.IsPermanent(err) || belay.CodeOf(err) != belay.CodeInvalid {
			t.Errorf("%q is %q, %v", text, got, err)
		}
	}
}

// Rule: no data, however it looks, becomes a reference once it is escaped.
func FuzzEscape(f *testing.F) {
	for _, s := range []string{"${{ secrets.TOKEN }}", "$", "$$${{", "${{", "$${{ secrets.TOKEN }}",
		"}}${{secrets.A}}"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, data string) {
		got, err := (*Store)(nil).Scope("http").Resolve(Escape(data))
		if err != nil || got != data {
			t.Errorf("%q is %q, %v", data, got, err)
		}
	})
}

// Rule: an unknown secret and a secret of another workflow give the same permanent error, which
// names the secret and contains no value.
func TestForbiddenSecretsLookUnknown(t *testing.T) {
	s := store(t, "TOKEN for deploy")
	_, forbidden := s.Scope("http").Value("TOKEN")
	_, unknown := s.Scope("http").Value("NONE_")
	for _, err := range []error{forbidden, unknown} {
		if !belay.IsPermanent(err) || belay.CodeOf(err) != belay.CodeForbidden ||
			strings.Contains(err.Error(), "value") {
			t.Errorf("%v", err)
		}
	}
	if a, b := forbidden.Error(), strings.ReplaceAll(unknown.Error(), "NONE_", "TOKEN"); a != b {
		t.Errorf("%q and %q tell the two cases apart", a, b)
	}
	if v, err := s.Scope("http", "deploy").Value("TOKEN"); v != "t0ken-value" || err != nil {
		t.Errorf("a task of the workflow: %q, %v", v, err)
	}
	if _, err := (*Store)(nil).Scope("http").Value("TOKEN"); belay.CodeOf(err) != belay.CodeForbidden {
		t.Errorf("without rules: %v", err)
	}
}

// Rule: a secret that cannot be read is an error that may be retried; the error names the secret only,
// and the log has the reason. Too short secrets are refused.
func TestUnreadableSecrets(t *testing.T) {
	dir := t.TempDir()
	path, link, open := filepath.Join(dir, "key"), filepath.Join(dir, "link"), filepath.Join(dir, "open")
	err := errors.Join(os.WriteFile(path, []byte("file-value\n"), 0o600), os.Symlink(path, link),
		os.WriteFile(open, []byte("open-value"), 0o644),
		os.WriteFile(filepath.Join(dir, "short"), []byte("abc\n"), 0o600),
		os.WriteFile(filepath.Join(dir, "large"), make([]byte, maxSize+1), 0o600))
	if err != nil {
		t.Fatal(err)
	}
	s := store(t, "GOOD from file:"+path+" for *", "LINK from file:"+link+" for *", "OPEN from file:"+open+" for *",
		"NOWHERE from file:"+dir+"/none for *", "LARGE from file:"+dir+"/large for *", "UNSET for *",
		"GIT from git:https://git.example/app for *", "SHORT from file:"+dir+"/short for *",
		"LOGIN from git:https://git.example/known for *", "FAR from git:https://git.example/none for *")
	var log bytes.Buffer
	s.Log = slog.New(slog.NewTextHandler(&log, nil))
	c := s.Scope("x")
	if v, err := c.Value("GOOD"); v != "file-value" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if diff := cmp.Diff([]string{path, link, open, dir + "/none", dir + "/large", dir + "/short"},
		s.Files()); diff != "" {
		t.Error(diff)
	}
	for _, name := range []string{"LINK", "OPEN", "NOWHERE", "LARGE", "UNSET", "GIT"} {
		log.Reset()
		v, err := c.Value(name)
		if belay.CodeOf(err) != belay.CodeUnavailable || belay.IsPermanent(err) || v != "" ||
			strings.Contains(err.Error(), dir) || !strings.Contains(log.String(), name) {
			t.Errorf("%s: %q, %v; the log: %s", name, v, err, log.String())
		}
		if strings.Contains(log.String(), "-value") {
			t.Errorf("%s: the log has the secret: %s", name, log.String())
		}
	}
	if _, err := c.Value("SHORT"); !belay.IsPermanent(err) {
		t.Errorf("a short secret: %v", err)
	}
	s.Git = func(url string) (string, string, bool, error) {
		return "user", "git-value", url == "https://git.example/known", nil
	}
	if v, err := c.Value("LOGIN"); v != "git-value" || err != nil {
		t.Errorf("%q, %v", v, err)
	}
	if v, err := c.Value("FAR"); v != "" || belay.CodeOf(err) != belay.CodeUnavailable {
		t.Errorf("%q, %v", v, err)
	}
}

// Rule: a secret may be sent only to the hosts of its rule.
func TestSecretsStayAtTheirHosts(t *testing.T) {
	s := store(t, "TOKEN for http to api.example.org,*.example.com:8443", "PROD for http",
		"ALL from env:PROD for * to *")
	for _, tt := range []struct {
		secret, host string
		want         bool
	}{
		{"TOKEN", "api.example.org:443", true}, {"TOKEN", "a.example.com:8443", true},
		{"TOKEN", "a.example.com:443", false}, {"TOKEN", "evil.example:443", false}, {"TOKEN", "10.0.0.1:443", false},
		{"PROD", "api.example.org:443", false}, {"ALL", "evil.example:443", true},
	} {
		c := s.Scope("http")
		if _, err := c.Value(tt.secret); err != nil {
			t.Fatal(err)
		}
		target, err := reach.ParseTarget(tt.host, 0)
		if err != nil {
			t.Fatal(err)
		}
		err = c.CheckHost(target)
		if (err == nil) != tt.want || err != nil && (!belay.IsPermanent(err) ||
			strings.Contains(err.Error(), "value")) {
			t.Errorf("%s to %s: %v", tt.secret, tt.host, err)
		}
		if err := c.CheckHost(target, tt.secret); err != nil {
			t.Errorf("%s is excepted: %v", tt.secret, err)
		}
	}
}

// Rule: invalid rules are refused, with the form of a valid rule.
func TestRulesAreChecked(t *testing.T) {
	for text, want := range map[string]string{
		"":                                       "it is empty",
		"TOKEN":                                  `"for" must list the workflows`,
		"TOKEN for":                              `"for" must list the workflows`,
		"A-B for http":                           "letters, digits and _",
		"TOKEN http":                             "is expected",
		"TOKEN for a for b":                      "given twice",
		"TOKEN from file:relative for http":      "absolute path",
		"TOKEN from vault:x for http":            "source of a secret",
		"TOKEN from git:http://x/y for http":     "https URL without credentials",
		"TOKEN from git:https://a:b@x/y for a":   "https URL without credentials",
		"TOKEN from s3cret for http":             "source of a secret",
		"TOKEN for http to https://example.org/": "did you mean example.org:443?",
		"TOKEN for http to *,a.example":          "every host",
		"TOKEN for http to":                      "the list is empty",
	} {
		_, err := Parse([]string{text})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "NAME [from") ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: %v; want %s", text, err, want)
		}
	}
}

// Rule: a Hider finds a secret as it is, and as echoing programs write it.
func TestEchoesAreHidden(t *testing.T) {
	const value = `p4ss/"wörd"+&`
	s := store(t, "TOKEN for *")
	s.Env = func(string) string { return value }
	c := s.Scope("x")
	if _, err := c.Value("TOKEN"); err != nil {
		t.Fatal(err)
	}
	c.Hide("TOKEN", "/services/T1/B2")
	quoted, _ := json.Marshal(value)
	for _, echo := range []string{
		value, string(quoted), url.QueryEscape(value), url.PathEscape(value), "/services/T1/B2",
		"p4ss%2f%22w%c3%b6rd%22%2b%26", `p4ss/\"wörd\"+&`, `p4ss/\"w\u00f6rd\"+&`, `p4ss\/\"wörd\"+&`,
		`p4ss/\\\"wörd\\\"+&`,
	} {
		if got := c.Hider().Text("<" + echo + ">"); strings.Contains(got, "w") || !strings.Contains(got, "[TOKEN]") &&
			!strings.Contains(echo, "services") {
			t.Errorf("%q is %q", echo, got)
		}
	}
	for _, user := range []string{"", "u", "us", "usr", "user:"} {
		echo := base64.StdEncoding.EncodeToString([]byte(user + value + "tail"))
		if got := c.Hider().Text(echo); !strings.Contains(got, "[TOKEN]") {
			t.Errorf("%q in Base64 is %q", user+value, got)
		}
	}
}
