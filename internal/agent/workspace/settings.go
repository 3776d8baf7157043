package workspace

import (
	"context"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// maxConfig is the maximum size of a repository's configuration, in bytes.
const maxConfig = 1 << 20

// setting is an entry of git's configuration. A key may occur several times.
type setting struct{ key, value string }

// settingsOf parses the text of a git configuration with git. It does not read files that the
// configuration includes.
func settingsOf(ctx context.Context, p *private, text []byte) ([]setting, error) {
	file := filepath.Join(p.dir, "workspace.config")
	if err := writeFile(file, text); err != nil {
		return nil, err
	}
	out, err := p.git(ctx, command{args: []string{"config", "--file", file, "--no-includes", "--list", "-z"}})
	if err != nil {
		return nil, err
	}
	return parseSettings(out), nil
}

func parseSettings(text []byte) (all []setting) {
	for line := range strings.SplitSeq(string(text), "\x00") {
		if key, value, _ := strings.Cut(line, "\n"); key != "" {
			all = append(all, setting{key, value})
		}
	}
	return all
}

// settingsText writes settings in the format that parseSettings reads.
func settingsText(all []setting) []byte {
	var b strings.Builder
	for _, s := range all {
		b.WriteString(s.key + "\n" + s.value + "\x00")
	}
	return []byte(b.String())
}

// keptSettings matches the names of the settings that Salvage keeps. These settings change how git
// works, and none of them names a program.
var keptSettings = regexp.MustCompile(`^(user\.(name|email)|branch\..+\.(remote|merge|rebase|pushremote|description)|` +
	`remote\..+\.(url|pushurl|fetch|push|tagopt|prune|skipdefaultupdate)|remote\.pushdefault|` +
	`core\.(autocrlf|eol|safecrlf|filemode|ignorecase|symlinks|quotepath|precomposeunicode|abbrev|whitespace|logallrefupdates|sparsecheckout|sparsecheckoutcone)|` +
	`pull\.(rebase|ff)|push\.(default|autosetupremote|followtags)|fetch\.(prune|prunetags)|merge\.(ff|conflictstyle|renames|log)|` +
	`rebase\.(autosquash|autostash|updaterefs|rebasemerges|stat)|rerere\.(enabled|autoupdate)|diff\.(algorithm|renames|mnemonicprefix|noprefix|colormoved)|` +
	`log\.(date|decorate|follow)|status\..+|advice\..+|color\..+|column\..+|init\.defaultbranch|index\.(version|threads)|notes\.(displayref|rewriteref)|` +
	`checkout\.defaultremote|feature\..+|commit\.(verbose|cleanup)|tag\.sort|branch\.(sort|autosetupmerge|autosetuprebase))$`)

// kept returns the settings that Salvage keeps, and the keys of all other settings. It removes
// credentials from URLs.
func kept(all []setting) (keep []setting, others []string) {
	for _, s := range all {
		value, ok := keptValue(s)
		if !ok {
			others = append(others, s.key)
			continue
		}
		keep = append(keep, setting{s.key, value})
	}
	return keep, others
}

func keptValue(s setting) (string, bool) {
	if !keptSettings.MatchString(s.key) || len(s.value) > maxName || strings.HasPrefix(s.value, "-") ||
		strings.ContainsFunc(s.key+s.value, unicode.IsControl) {
		return "", false
	}
	if strings.HasPrefix(s.key, "remote.") && (strings.HasSuffix(s.key, ".url") ||
		strings.HasSuffix(s.key, ".pushurl")) {
		return keptURL(s.value)
	}
	return s.value, true
}

// keptURL returns a URL without its password. It returns false if git could run a program because
// of the URL.
func keptURL(at string) (string, bool) {
	if filepath.IsAbs(at) {
		return at, true
	}
	scheme, rest, ok := strings.Cut(at, "://")
	switch {
	case ok && slices.Contains([]string{"https", "http", "ssh", "file", "git"}, scheme):
		where, path, _ := strings.Cut(rest, "/")
		user, host, with := cutLast(where, "@")
		if with && scheme == "ssh" {
			user, _, _ = strings.Cut(user, ":")
			host = user + "@" + host
		}
		return scheme + "://" + host + "/" + path, true
	case ok, strings.Contains(at, "::"):
		return "", false
	}
	host, path, ok := strings.Cut(at, ":")
	return at, ok && scpForm.MatchString(host) && path != "" && !strings.HasPrefix(path, "-")
}

// cutLast splits s at the last separator. If there is no separator, before is empty and after is s.
func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

// settings compares the git configuration of a checkout with its state before the command got it.
// It returns the settings that Salvage keeps; nil if these are unchanged. It records all other
// changed settings as lost.
func settings(ctx context.Context, p *private, repo *repository, lost *losses) []setting {
	if p.at.Config == nil {
		return nil
	}
	raw, err := repo.read("config", maxConfig)
	if err == nil && string(raw) == string(p.at.Config) {
		return nil
	}
	var now []setting
	if err == nil {
		now, err = settingsOf(ctx, p, raw)
	}
	if err != nil {
		lost.add("the settings in .git/config (%v)", err)
		return nil
	}
	was, err := settingsOf(ctx, p, p.at.Config)
	if err != nil {
		return nil
	}
	keepNow, _ := kept(now)
	keepWas, _ := kept(was)
	_, others := kept(slices.DeleteFunc(slices.Clone(now), func(s setting) bool { return slices.Contains(was, s) }))
	slices.Sort(others)
	lost.addAll("of .git/config the settings", slices.Compact(others))
	for _, s := range now {
		if value, ok := keptValue(s); ok && value != s.value && !slices.Contains(was, s) {
			lost.add("the password in the setting %s in .git/config", s.key)
		}
	}
	if slices.Equal(keepNow, keepWas) {
		return nil
	}
	if keepNow == nil {
		keepNow = []setting{}
	}
	return keepNow
}

// withSettings returns the current configuration, but with the restored values of all settings that
// Salvage keeps.
func withSettings(current, restored []setting) []byte {
	all := slices.DeleteFunc(slices.Clone(current), func(s setting) bool { return keptSettings.MatchString(s.key) })
	keep, _ := kept(restored) // restored is checked again, because it may come from an attacker
	all = append(all, keep...)
	var b strings.Builder
	for _, s := range all {
		first, last := strings.Index(s.key, "."), strings.LastIndex(s.key, ".")
		if first < 0 {
			continue
		}
		section := s.key[:first]
		if first < last {
			section += " " + quote(s.key[first+1:last])
		}
		b.WriteString("[" + section + "]\n\t" + s.key[last+1:] + " = " + quote(s.value) + "\n")
	}
	return []byte(b.String())
}
