package secretref

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/reach"
	"github.com/belaydev/belay/internal/secret"
)

const (
	// maxSize is the maximum size of a secret, in bytes.
	maxSize = 64 << 10
	// minSize is the minimum size of a secret, in bytes. A shorter secret cannot be removed from
	// output, because it occurs in too many other words.
	minSize = 4
)

// Store has the rules of this process. A nil Store has no rules. A Store is safe for concurrent use.
type Store struct {
	// Git finds the credentials for a repository; nil if there are none.
	Git func(url string) (user, password string, ok bool, err error)
	// Env returns the value of an environment variable; nil means os.Getenv.
	Env func(name string) string
	// Log gets the reason why a secret cannot be read; nil means slog.Default(). Errors do not
	// contain the reason, because it is for operators only.
	Log *slog.Logger

	rules []rule
}

// Parse reads the rules of a configuration. The error has one line for each invalid rule, and begins
// each line with the name of the secret.
func Parse(texts []string) (*Store, error) {
	s := &Store{}
	var faults []error
	for _, text := range texts {
		r, err := parse(text)
		if err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(text), " ")
			faults = append(faults, fmt.Errorf("%s: %w; a rule has the form %s", reach.Printable(first), err, form))
			continue
		}
		s.rules = append(s.rules, r)
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return s, nil
}

// Files returns the paths of all files that the rules name, so that they can be hidden from jobs.
func (s *Store) Files() (paths []string) {
	if s == nil {
		return nil
	}
	for _, r := range s.rules {
		if r.kind == "file" && !slices.Contains(paths, r.source) {
			paths = append(paths, r.source)
		}
	}
	return paths
}

// Scope returns the secrets that an execution may use. workflows are the names of its own workflow,
// and of the workflow of the execution that started it.
func (s *Store) Scope(workflows ...string) *Scope {
	return &Scope{store: s, workflows: workflows, used: map[string]used{}}
}

// Scope resolves the references of one run. It is not safe for concurrent use.
type Scope struct {
	store     *Store
	workflows []string
	used      map[string]used
	also      []secret.Hidden
}

// used is a secret that the run has used.
type used struct {
	rule  rule
	value string
}

// Resolve returns a text with the secrets in the place of the references. The error is marked with
// [belay.Permanent], unless the secret exists and cannot be read at the moment.
func (c *Scope) Resolve(text string) (string, error) {
	all, err := pieces(text)
	if err != nil {
		return "", belay.Permanent(err)
	}
	var b strings.Builder
	for _, p := range all {
		b.WriteString(p.text)
		if p.secret == "" {
			continue
		}
		value, err := c.Value(p.secret)
		if err != nil {
			return "", err
		}
		b.WriteString(value)
	}
	return b.String(), nil
}

// Value returns a secret by its name; see Resolve for the error.
func (c *Scope) Value(name string) (string, error) {
	if u, ok := c.used[name]; ok {
		return u.value, nil
	}
	r, ok := c.find(name)
	if !ok {
		return "", belay.Permanent(&belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
			"the secret %s is not allowed for the workflow %s here: the setting secrets.allow of the process that "+
				"runs the task must list it", name, strings.Join(c.workflows, " or "))})
	}
	value, err := c.store.read(r)
	if err != nil {
		c.store.log().Warn("a secret cannot be read", "secret", name, "error", err)
		return "", &belay.Error{Code: belay.CodeUnavailable, Message: fmt.Sprintf(
			"the secret %s cannot be read; the log of the process that runs the task says why", name)}
	}
	value = strings.TrimRight(value, "\r\n")
	if len(value) < minSize {
		return "", belay.Permanent(&belay.Error{Code: belay.CodeInvalid, Message: fmt.Sprintf(
			"the secret %s is empty or too short: it needs %d bytes at least, so that it can be removed from output",
			name, minSize)})
	}
	c.used[name] = used{r, value}
	return value, nil
}

// find returns the first rule of a name that allows the scope's workflows.
func (c *Scope) find(name string) (rule, bool) {
	if c.store == nil {
		return rule{}, false
	}
	i := slices.IndexFunc(c.store.rules, func(r rule) bool { return r.name == name && r.serves(c.workflows) })
	if i < 0 {
		return rule{}, false
	}
	return c.store.rules[i], true
}

// CheckHost returns an error if a secret that the run has used, other than those in except, may not
// be sent to a host.
func (c *Scope) CheckHost(t reach.Target, except ...string) error {
	for _, name := range c.Used() {
		if r := c.used[name].rule; !slices.Contains(except, name) && !r.leadsTo(t) {
			return belay.Permanent(&belay.Error{Code: belay.CodeForbidden, Message: fmt.Sprintf(
				"the secret %s may not be sent to this host: its rule in secrets.allow must list the host after \"to\"",
				name)})
		}
	}
	return nil
}

// Used returns the names of the secrets that the run has used, sorted.
func (c *Scope) Used() []string {
	var names []string
	for name := range c.used {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Hide adds a text that was made from a secret, such as the path of a secret URL, to the texts that
// must not be shown.
func (c *Scope) Hide(name, text string) {
	if len(text) >= minSize {
		c.also = append(c.also, secret.Hidden{Name: name, Value: secret.Text(text)})
	}
}

// Hider returns a new Hider for the secrets that the run has used. It also finds the forms that they
// have in URLs, in JSON, and inside Base64.
func (c *Scope) Hider() *secret.Hider {
	all := slices.Clone(c.also)
	for _, name := range c.Used() {
		for _, form := range forms(c.used[name].value) {
			all = append(all, secret.Hidden{Name: name, Value: secret.Text(form)})
		}
	}
	return secret.NewHider(all)
}

// read reads a secret from its source.
func (s *Store) read(r rule) (string, error) {
	switch r.kind {
	case "file":
		value, err := secret.ReadDirect(r.source, maxSize)
		return string(value), err
	case "git":
		if s.Git == nil {
			return "", errors.New("there are no credentials for repositories: set agent.git_credentials")
		}
		_, password, ok, err := s.Git(r.source)
		if err == nil && !ok {
			err = fmt.Errorf("there are no credentials for %s", r.source)
		}
		return password, err
	}
	env := s.Env
	if env == nil {
		env = os.Getenv
	}
	value := env(r.source)
	switch {
	case value == "":
		return "", fmt.Errorf("the environment variable %s is not set", r.source)
	case len(value) > maxSize:
		return "", fmt.Errorf("the environment variable %s has more than %d bytes", r.source, maxSize)
	}
	return value, nil
}

func (s *Store) log() *slog.Logger {
	if s.Log == nil {
		return slog.Default()
	}
	return s.Log
}
