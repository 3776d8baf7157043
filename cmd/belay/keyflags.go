package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay/internal/config"
	"github.com/belaydev/belay/internal/screen"
)

// keyFlag is the command line flag of one configuration key. Set only stores the text of the flag;
// config.Load checks the values of all flags together.
type keyFlag struct {
	key  config.Key
	text string
	set  bool
}

func (f *keyFlag) String() string { return f.text }
func (f *keyFlag) Type() string   { return f.key.Type() }

// Set stores the text of the flag. If the key is a list, the text is the whole list, so Set refuses
// a second text, which would silently replace the first.
func (f *keyFlag) Set(text string) error {
	if f.set && f.key.Type() == "list" {
		return errors.New("it is given twice; write the whole list once")
	}
	f.text, f.set = text, true
	return nil
}

// keyFlags are the flags of a command that set configuration keys.
type keyFlags []*keyFlag

// add adds to a command the flags of the configuration keys for which wanted returns true.
func (k *keyFlags) add(c *cobra.Command, wanted func(config.Key) bool) {
	for _, key := range config.Keys() {
		if key.Name == "data" || !wanted(key) {
			continue // --data is a global flag of all commands
		}
		flag := &keyFlag{key: key, text: key.Default()}
		*k = append(*k, flag)
		f := c.Flags().VarPF(flag, key.Flag(), "", flagDoc(key.Doc))
		if key.IsBool() {
			f.NoOptDefVal = "true"
		}
	}
	_ = c.RegisterFlagCompletionFunc("log-level", cobra.FixedCompletions([]string{"debug", "info", "warn", "error"},
		cobra.ShellCompDirectiveNoFileComp))
	_ = c.RegisterFlagCompletionFunc("log-format", cobra.FixedCompletions([]string{"text", "json"},
		cobra.ShellCompDirectiveNoFileComp))
}

// load reads the configuration: flags have precedence over environment variables, and environment
// variables over the file.
func (k *keyFlags) load(c *cobra.Command, a *app, file string) (*config.Config, error) {
	sources := config.Sources{File: file, Environ: os.Environ(), Flags: make(map[string]string)}
	for _, f := range *k {
		if f.set {
			sources.Flags[f.key.Name] = f.text
		}
	}
	if c.Flags().Changed("data") {
		sources.Flags["data"] = a.data
	}
	cfg, err := config.Load(sources)
	if err != nil {
		return nil, fmt.Errorf("the configuration has errors:\n%w", err)
	}
	return cfg, nil
}

// flagDoc turns a sentence into the description of a flag: lower case, without the full stop.
func flagDoc(sentence string) string {
	return strings.ToLower(sentence[:1]) + strings.TrimSuffix(sentence[1:], ".")
}

// startLog makes the log of belay serve and belay worker, and installs it as the default log.
func (a *app) startLog(cfg *config.Config) *slog.Logger {
	o := &slog.HandlerOptions{Level: cfg.Log.Level}
	if a.verbose && cfg.From("log.level") == "default" {
		o.Level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(a.err, o))
	if cfg.Log.Format == "json" {
		log = slog.New(slog.NewJSONHandler(screen.JSON(a.err), o))
	}
	slog.SetDefault(log)
	for _, w := range config.Misspelt(os.Environ()) {
		log.Warn("an environment variable is not used", "why", w)
	}
	return log
}
