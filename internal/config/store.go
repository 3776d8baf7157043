package config

import (
	"net/url"
	"strings"
)

const sqlitePrefix = "sqlite:"

// store is the kind of a value that is the URL of a store.
type store struct{ to *string }

func (k store) set(s string) bool {
	dir, ok := strings.CutPrefix(s, sqlitePrefix)
	if !(ok && dir != "") && !isDatabase(s) {
		return false
	}
	*k.to = s
	return true
}
func (store) want() string {
	return "sqlite:DIR, such as sqlite:/var/lib/belay, or postgres://USER@HOST/DATABASE"
}
func (k store) show() string { return Shown(*k.to) }
func (store) word() string   { return "store" }
func (store) tags() []string { return []string{"!!str"} }

// isDatabase reports whether a URL names a PostgreSQL database. Errors in the rest of the URL are found when the
// database is opened.
func isDatabase(s string) bool {
	return strings.HasPrefix(s, "postgres://") || strings.HasPrefix(s, "postgresql://")
}

// secrets are the parameters of a database's URL that must not be shown.
var secrets = []string{"password", "sslpassword"}

// HasPassword reports whether the URL of a store contains a password, or may contain one because it
// cannot be parsed.
func HasPassword(s string) bool {
	if !strings.Contains(s, "://") {
		return false
	}
	u, err := url.Parse(s)
	if err != nil {
		return strings.Contains(s, "@")
	}
	if _, has := u.User.Password(); has {
		return true
	}
	for _, name := range secrets {
		if u.Query().Has(name) {
			return true
		}
	}
	return false
}

// Shown returns the URL of a store without its password.
func Shown(s string) string {
	if !HasPassword(s) {
		return s
	}
	u, err := url.Parse(s)
	if err != nil {
		kind, _, _ := strings.Cut(s, "://")
		return kind + "://…"
	}
	if u.User != nil {
		u.User = url.User(u.User.Username())
	}
	q := u.Query()
	for _, name := range secrets {
		q.Del(name)
	}
	u.RawQuery = q.Encode()
	return u.String()
}
