package secretref

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/belaydev/belay/internal/reach"
)

// rule is one rule of the configuration; see the package comment.
type rule struct {
	name      string
	kind      string // env, file or git
	source    string // the variable, the path or the URL
	workflows []string
	anywhere  bool          // to *
	hosts     *reach.Policy // nil without to
}

// everything is the word for all workflows, or all hosts.
const everything = "*"

// The words of a rule.
const (
	wordFrom = "from"
	wordFor  = "for"
	wordTo   = "to"
)

const form = "NAME [from env:VARIABLE|file:PATH|git:URL] for WORKFLOW,… [to HOST,…]"

// parse reads a rule.
func parse(text string) (rule, error) {
	words := strings.Fields(text)
	if len(words) == 0 {
		return rule{}, errors.New("it is empty")
	}
	r := rule{name: words[0]}
	if !name.MatchString(r.name) {
		return rule{}, errors.New("the name of a secret has letters, digits and _ only")
	}
	parts := map[string]string{}
	at := ""
	for _, word := range words[1:] {
		if word == wordFrom || word == wordFor || word == wordTo {
			if _, twice := parts[word]; twice {
				return rule{}, fmt.Errorf("%q is given twice", word)
			}
			at, parts[word] = word, ""
			continue
		}
		if at == "" {
			return rule{}, fmt.Errorf("after the name, %q or %q is expected", wordFrom, wordFor)
		}
		parts[at] = strings.TrimSpace(parts[at] + " " + word)
	}
	if err := r.from(parts); err != nil {
		return rule{}, err
	}
	if r.workflows = list(parts[wordFor]); len(r.workflows) == 0 {
		return rule{}, fmt.Errorf("%q must list the workflows that may use the secret, or %s", wordFor, everything)
	}
	err := r.to(parts)
	return r, err
}

// from sets the source of the rule.
func (r *rule) from(parts map[string]string) error {
	text, given := parts[wordFrom]
	if !given {
		r.kind, r.source = "env", r.name
		return nil
	}
	r.kind, r.source, _ = strings.Cut(text, ":")
	switch {
	case r.kind == "env" && name.MatchString(r.source):
	case r.kind == "file" && filepath.IsAbs(r.source):
	case r.kind == "git" && strings.HasPrefix(r.source, "https://") && !strings.Contains(r.source, "@"):
	default:
		return errors.New("the source of a secret is env:VARIABLE, file:PATH with an absolute path, or git:URL with " +
			"an https URL without credentials")
	}
	return nil
}

// to sets the hosts of the rule.
func (r *rule) to(parts map[string]string) (err error) {
	text, given := parts[wordTo]
	if !given {
		return nil
	}
	hosts := list(text)
	if r.anywhere = slices.Equal(hosts, []string{everything}); r.anywhere {
		return nil
	}
	r.hosts, err = reach.Parse(hosts)
	return err
}

// list splits a text at its commas.
func list(text string) (items []string) {
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item != "" {
			items = append(items, item)
		}
	}
	return items
}

// serves reports whether the rule allows one of the workflows.
func (r *rule) serves(workflows []string) bool {
	return slices.ContainsFunc(r.workflows, func(w string) bool {
		return w == everything || slices.Contains(workflows, w)
	})
}

// leadsTo reports whether an HTTP request may send the secret to a host.
func (r *rule) leadsTo(t reach.Target) bool { return r.anywhere || r.hosts.Lists(t) }
