package config

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/belaydev/belay"
)

// Sources are the sources of a configuration.
type Sources struct {
	// File is the path of a YAML file; "" for none.
	File string
	// Environ are environment variables in the form of os.Environ.
	Environ []string
	// Flags are the values of the flags that were given, by the name of the key.
	Flags map[string]string
}

// Value is the value of a key.
type Value struct {
	Key  string `json:"key"`
	Text string `json:"value"`
	// From is the source of the value: default, FILE:LINE, a variable or a flag.
	From string `json:"from"`
}

// setting is the text that a source (a line of the file, a variable or a flag) gives for a key.
type setting struct {
	key, text, from string
}

// problems are the errors of a configuration, one line each.
type problems []string

func (p *problems) add(from, key, format string, args ...any) {
	where := from
	if key != "" {
		where += ": " + key
	}
	*p = append(*p, where+": "+fmt.Sprintf(format, args...))
}

// Load reads a configuration. If values are invalid, it returns one *belay.Error with CodeInvalid,
// whose message has a line for each invalid value. If the file does not exist, it returns an error
// with CodeNotFound.
func Load(s Sources) (*Config, error) {
	c := Default()
	var bad problems
	if s.File != "" {
		text, err := readFile(s.File)
		if err != nil {
			return nil, err
		}
		c.File = s.File
		for _, v := range fromFile(s.File, text, &bad) {
			c.take(v, &bad)
		}
	}
	own := fromEnv(s.Environ, Key.Env)
	if c.Agents() || wantsAgents(own, s.Flags) {
		for _, v := range fromEnv(s.Environ, func(k Key) string { return k.also }) {
			c.take(v, &bad)
		}
	}
	for _, v := range own {
		c.take(v, &bad)
	}
	for _, k := range keys {
		if text, ok := s.Flags[k.Name]; ok {
			if k.secretive(text) {
				where := "the password in PGPASSWORD, or the whole address in"
				switch {
				case k.Name == "http.proxy", k.Name == "broker.url":
					where = "the whole URL in"
				case strings.HasPrefix(k.Name, "agent."):
					where = "the credentials in the file that agent.git_credentials names, or the whole URL in"
				}
				bad.add("--"+k.Flag(), "", "everybody on this machine can read a command line; put %s %s", where,
					k.Env())
				continue
			}
			c.take(setting{k.Name, text, "--" + k.Flag()}, &bad)
		}
	}
	c.together(&bad)
	if len(bad) > 0 {
		return nil, &belay.Error{Code: belay.CodeInvalid, Message: strings.Join(bad, "\n")}
	}
	return c, nil
}

// take sets the field of a key to the value of a setting, or adds an error to bad if the value is
// not valid.
func (c *Config) take(v setting, bad *problems) {
	k, _ := find(v.key)
	if kind := k.of(c); !kind.set(v.text) {
		name := v.key
		if !strings.Contains(v.from, ":") {
			name = "" // v.from is a variable or flag, whose name already tells the key
		}
		bad.add(v.from, name, "%s is not valid; write %s", shown(k, v.text), kind.want())
	}
	c.values[v.key] = Value{Key: v.key, From: v.from}
}

// shown returns the text of a value for an error message, without the password that the value may
// contain.
func shown(k Key, text string) string {
	if k.secretive(text) && Shown(text) == text {
		return "the value"
	}
	return quote(Shown(text))
}

// together checks the rules that concern two keys.
func (c *Config) together(bad *problems) {
	cert, key := c.values["tls_cert"], c.values["tls_key"]
	switch {
	case cert.From != "" && key.From == "":
		bad.add(cert.From, "tls_cert", "a certificate needs its private key; set tls_key too")
	case key.From != "" && cert.From == "":
		bad.add(key.From, "tls_key", "a private key needs its certificate; set tls_cert too")
	}
	dir, ok := strings.CutPrefix(c.Store, sqlitePrefix)
	if data := c.values["data"]; ok && data.From != "" && dir != c.Data {
		bad.add(c.values["store"].From, "store",
			"sqlite:%s is the data directory %s, and data (%s) is %s; leave one of the two out", dir, dir, data.From,
			c.Data)
	}
}

// fromEnv returns the settings in environment variables; nameOf returns the name of the variable
// for a key. An empty variable counts as not set.
func fromEnv(environ []string, nameOf func(Key) string) []setting {
	var all []setting
	for _, k := range keys {
		for _, e := range environ {
			if name, text, _ := strings.Cut(e, "="); name == nameOf(k) && text != "" {
				all = append(all, setting{k.Name, text, name})
			}
		}
	}
	return all
}

// Misspelt returns a warning for each environment variable whose name is similar to the variable of
// a key. Such a variable is no error, because variables of other programs may begin with BELAY_
// too.
func Misspelt(environ []string) []string {
	var all []string
	for _, e := range environ {
		name, _, _ := strings.Cut(e, "=")
		if !strings.HasPrefix(name, envPrefix) {
			continue
		}
		if slices.ContainsFunc(keys, func(k Key) bool { return k.Env() == name }) || slices.Contains(others, name) {
			continue
		}
		var names []string
		for _, k := range keys {
			names = append(names, strings.TrimPrefix(k.Env(), envPrefix))
		}
		if near := nearest(strings.TrimPrefix(name, envPrefix), names); near != "" {
			all = append(all, fmt.Sprintf("%s is not a setting; did you mean %s?", name, envPrefix+near))
		}
	}
	slices.Sort(all)
	return all
}

// others are environment variables of Belay that set no key of a server.
var others = []string{
	"BELAY_CONFIG", "BELAY_SERVER", "BELAY_KEY", "BELAY_EXECUTION", "BELAY_STEP", "BELAY_TOKEN",
	"BELAY_IDEMPOTENCY_KEY",
}

// Values returns the values of all keys with their sources.
func (c *Config) Values() []Value {
	all := make([]Value, len(keys))
	for i, k := range keys {
		from := c.values[k.Name].From
		all[i] = Value{Key: k.Name, Text: k.of(c).show(), From: cmp.Or(from, "default")}
		if k.Name == "store" && c.Store == "" {
			all[i].Text = c.StoreURL()
		}
	}
	return all
}

// From is the source of a key's value; see Value.
func (c *Config) From(key string) string { return cmp.Or(c.values[key].From, "default") }

// maxFile is the maximum size of a configuration file, in bytes.
const maxFile = 1 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, &belay.Error{Code: belay.CodeNotFound, Message: "there is no configuration file " + path}
	}
	if err != nil {
		return nil, fmt.Errorf("open the configuration: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return nil, fmt.Errorf("read the configuration: %w", err)
	}
	if len(text) > maxFile {
		return nil, &belay.Error{
			Code: belay.CodeInvalid, Message: fmt.Sprintf(
				"%s: the file is larger than %s, the limit of a configuration", path, sized(maxFile)),
		}
	}
	return text, nil
}
