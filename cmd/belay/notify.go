package main

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

// notifyFlags are the flags about notifications of the ends of executions.
type notifyFlags struct {
	to     []string
	on     []string
	secret string
	slack  bool
}

// ends are the values of --notify-on, and of --on of belay notify set.
var ends = []string{belay.Failed.String(), belay.Succeeded.String(), belay.Cancelled.String()}

func (f *notifyFlags) register(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.to, "notify", nil,
		"send an HTTP request to this `URL` when an execution ends; may be repeated. A URL that is a secret is given "+
			"as '${{ secrets.NAME }}', and a notification with other settings than the flags say as a JSON object")
	c.Flags().StringSliceVar(&f.on, "notify-on", nil,
		"the `states` of an end that is reported: failed (the default), succeeded, cancelled")
	c.Flags().StringVar(&f.secret, "notify-secret", "",
		"the `name` of the secret that signs the requests, as Standard Webhooks describes; never the secret itself")
	c.Flags().BoolVar(&f.slack, "notify-slack", false,
		"send the body that incoming webhooks of Slack and compatible services accept")
	_ = c.RegisterFlagCompletionFunc("notify-on", cobra.FixedCompletions(ends, cobra.ShellCompDirectiveNoFileComp))
	for _, flag := range []string{"notify", "notify-secret"} {
		_ = c.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
}

// notifications are the notifications that the flags describe.
func (f *notifyFlags) notifications() ([]belay.Notification, error) {
	if len(f.to) == 0 {
		if len(f.on) > 0 || f.secret != "" || f.slack {
			return nil, usage("--notify-on, --notify-secret and --notify-slack describe a --notify, which is missing")
		}
		return nil, nil
	}
	usual := belay.Notification{}
	var err error
	if usual.On, err = endsOf("notify-on", f.on); err != nil {
		return nil, err
	}
	if f.slack {
		usual.Format = belay.FormatSlack
	}
	if f.secret != "" {
		if usual.Secret, err = secretOf("notify-secret", f.secret); err != nil {
			return nil, err
		}
	}
	all := make([]belay.Notification, len(f.to))
	for i, to := range f.to {
		if !strings.HasPrefix(to, "{") {
			all[i] = usual
			all[i].URL = to
			continue
		}
		d := json.NewDecoder(strings.NewReader(to))
		d.DisallowUnknownFields()
		if err := d.Decode(&all[i]); err != nil {
			return nil, usage("--notify is no notification: %v", err)
		}
	}
	if err := belay.CheckNotifications("submit", all); err != nil {
		return nil, err
	}
	return all, nil
}

// endsOf reads the states of ends that the arguments of a flag name.
func endsOf(flag string, names []string) ([]belay.State, error) {
	var all []belay.State
	for _, name := range names {
		var state belay.State
		if err := state.UnmarshalText([]byte(name)); err != nil || !slices.Contains(ends, name) {
			return nil, usage("--%s is %s; it can be %s", flag, quoted(name), strings.Join(ends, ", "))
		}
		all = append(all, state)
	}
	return all, nil
}
