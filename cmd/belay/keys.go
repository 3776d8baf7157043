package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/screen"
)

// scopes lists the scopes of API keys with their descriptions.
var scopes = []struct {
	scope belay.Scope
	doc   string
}{
	{belay.ScopeRead, "read everything: executions, inputs, results, histories, logs and workers"},
	{belay.ScopeSubmit, "submit executions and signals"},
	{belay.ScopeOperate, "cancel, pause, resume, retry, steal, drain, change gates"},
	{belay.ScopeWorker, "own executions: claim, checkpoint, settle, lock"},
	{belay.ScopeAdmin, "everything, and the management of keys"},
}

func (a *app) keysCommand() *cobra.Command {
	c := &cobra.Command{
		Use: "keys", Short: "Make, list and revoke the API keys of a server", Args: none,
		Long: `Make, list and revoke the API keys with which programs and people use a server.
(Do not confuse an API key with --key of belay run and belay submit, which is an
idempotency key.)

As soon as one API key exists, the server requires a key for every request. The scopes
of a key are chosen when the key is made; the scope admin includes all others. The
server stores only a hash of the key, so the key itself is shown only when it is made.

If several servers share a database, name the database with --store or BELAY_STORE to
make their first key without a server.`,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	c.PersistentFlags().String("store", "",
		"the `store` of the server, postgres://USER@HOST/DATABASE or sqlite:DIR; PGPASSWORD holds its password")
	c.AddCommand(a.keysCreateCommand(), a.keysLsCommand(), a.keysRevokeCommand())
	return c
}

func (a *app) keysCreateCommand() *cobra.Command {
	var spec belay.KeySpec
	var names []string
	c := &cobra.Command{
		Use: "create --name NAME --scope SCOPE[,SCOPE…]", Short: "Make an API key and print it", Args: none,
		Long: "Make an API key and print it. The key is printed only now; standard output gets nothing else.\n\n" +
			"The scopes are:\n" +
			scopeHelp(),
		Example: `  belay keys create --name ci --scope read,submit
  belay keys create --name gpu-1 --scope worker > gpu-1.key`,
		RunE: func(c *cobra.Command, _ []string) error {
			var err error
			if spec.Scopes, err = parseScopes(names); err != nil {
				return err
			}
			if strings.TrimSpace(spec.Name) == "" {
				return usage("give the name of the key's user with --name; histories show it as the actor")
			}
			if err := a.useStore(c); err != nil {
				return err
			}
			return a.createKey(named(c), spec)
		},
	}
	c.Flags().StringVar(&spec.Name, "name", "", "the name of the program or person that will use the key")
	c.Flags().StringSliceVar(&names, "scope", nil, "the scopes of the key: "+strings.Join(scopeNames(), ", "))
	_ = c.RegisterFlagCompletionFunc("name", cobra.NoFileCompletions)
	_ = c.RegisterFlagCompletionFunc("scope", completeScopes)
	return c
}

func scopeHelp() string {
	var b strings.Builder
	for _, s := range scopes {
		fmt.Fprintf(&b, "  %-8s %s\n", s.scope, s.doc)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

func scopeNames() []string {
	var names []string
	for _, s := range scopes {
		names = append(names, string(s.scope))
	}
	return names
}

// completeScopes offers to the shell the scopes that are not in the list yet.
func completeScopes(_ *cobra.Command, _ []string, typed string) ([]string, cobra.ShellCompDirective) {
	before := ""
	if i := strings.LastIndexByte(typed, ','); i >= 0 {
		before = typed[:i+1]
	}
	var out []string
	for _, s := range scopes {
		if !slices.Contains(strings.Split(before, ","), string(s.scope)) {
			out = append(out, before+string(s.scope)+"\t"+s.doc)
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}

func parseScopes(names []string) ([]belay.Scope, error) {
	if len(names) == 0 {
		return nil, usage("give the scopes of the key with --scope: %s", strings.Join(scopeNames(), ", "))
	}
	var out []belay.Scope
	for _, n := range names {
		s := belay.Scope(strings.TrimSpace(n))
		if !slices.Contains(scopeNames(), string(s)) {
			return nil, usage("--scope %s is no scope; the scopes are %s", quoted(n), strings.Join(scopeNames(), ", "))
		}
		if !slices.Contains(out, s) {
			out = append(out, s)
		}
	}
	return out, nil
}

// createKey makes a key. It also makes the data directory, since a user may make the first key
// before starting the first server.
func (a *app) createKey(ctx context.Context, spec belay.KeySpec) error {
	b, err := a.backend(ctx, "belay keys create")
	if err != nil {
		return err
	}
	spec.Actor = actor()
	key, err := b.CreateKey(ctx, spec)
	if err = closing(b, err); err != nil {
		return err
	}
	if a.output == "json" {
		return screen.PrintJSON(a.out, key)
	}
	fmt.Fprintf(a.err, "This is the key %s (%s) with the scopes %s. Belay does not store the key and cannot show it "+
		"again.\n", screen.Line(key.Name), key.ID, joinScopes(key.Scopes))
	fmt.Fprintln(a.out, key.Secret)
	return nil
}

func joinScopes(s []belay.Scope) string {
	var names []string
	for _, scope := range s {
		names = append(names, string(scope))
	}
	return strings.Join(names, ",")
}

func (a *app) keysLsCommand() *cobra.Command {
	var all bool
	c := &cobra.Command{
		Use: "ls", Short: "List the keys, without their secrets", Args: none,
		RunE: func(c *cobra.Command, _ []string) error {
			if err := a.useStore(c); err != nil {
				return err
			}
			ctx := named(c)
			return a.writing(ctx, func(b belay.Backend) error {
				keys, err := b.Keys(ctx)
				if err != nil {
					return err
				}
				return a.listKeys(keys, all)
			})
		},
	}
	c.Flags().BoolVar(&all, "all", false, "list revoked keys too")
	return c
}

func (a *app) listKeys(keys []belay.Key, all bool) error {
	shown := []belay.Key{}
	for _, k := range keys {
		if all || k.RevokedAt.IsZero() {
			shown = append(shown, k)
		}
	}
	if a.output == "json" {
		return screen.PrintJSON(a.out, shown)
	}
	if len(shown) == 0 {
		fmt.Fprintln(a.out, "no keys")
		return nil
	}
	t := screen.NewTable(a.out, "ID", "NAME", "SCOPES", "AGE", "REVOKED")
	for _, k := range shown {
		revoked := "-"
		if !k.RevokedAt.IsZero() {
			revoked = since(k.RevokedAt) + " ago"
		}
		t.Row(k.ID.String(), k.Name, joinScopes(k.Scopes), since(k.CreatedAt), revoked)
	}
	return t.Flush()
}

func (a *app) keysRevokeCommand() *cobra.Command {
	reason := ""
	c := &cobra.Command{
		Use: "revoke ID", Short: "Revoke a key for ever", Args: exactly("the id of a key"),
		Long: "Revoke a key for ever. ID is the key's id, as belay keys ls shows it, or the key's name, if no other\n" +
			"valid key has the same name. The server that revokes the key refuses it at once; other servers of\n" +
			"the same store refuse it within seconds.",
		RunE: func(c *cobra.Command, args []string) error {
			if err := a.useStore(c); err != nil {
				return err
			}
			ctx := named(c)
			return a.writing(ctx, func(b belay.Backend) error { return a.revokeKey(ctx, b, args[0], reason) })
		},
		ValidArgsFunction: a.completeKeys,
	}
	c.Flags().StringVar(&reason, "reason", "", "the reason, which the audit records")
	return c
}

func (a *app) revokeKey(ctx context.Context, b belay.Backend, arg, reason string) error {
	keys, err := b.Keys(ctx)
	if err != nil {
		return err
	}
	var found []belay.Key
	for _, k := range keys {
		if k.ID.String() == arg || k.Name == arg && k.RevokedAt.IsZero() {
			found = append(found, k)
		}
	}
	switch {
	case len(found) == 0:
		return &belay.Error{
			Code: belay.CodeNotFound, Message: "there is no key " + quoted(arg) + "; `belay keys ls` lists them",
		}
	case len(found) > 1:
		return usage("%d keys have the name %s; give the id of one, as `belay keys ls` shows it", len(found),
			quoted(arg))
	}
	if err := b.RevokeKey(ctx, belay.Revocation{Key: found[0].ID, Actor: actor(), Reason: reason}); err != nil {
		return err
	}
	fmt.Fprintf(a.err, "revoked %s (%s)\n", found[0].ID, screen.Line(found[0].Name))
	return nil
}

// completeKeys offers to the shell the keys that are not revoked.
func (a *app) completeKeys(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var ids []string
	_ = a.writing(named(c), func(b belay.Backend) error {
		keys, err := b.Keys(c.Context())
		for _, k := range keys {
			if k.RevokedAt.IsZero() {
				ids = append(ids, k.ID.String()+"\t"+k.Name)
			}
		}
		return err
	})
	return ids, cobra.ShellCompDirectiveNoFileComp
}
