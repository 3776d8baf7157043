package main

import (
	"reflect"
	"testing"

	"github.com/spf13/cobra"

	"github.com/belaydev/belay"
)

func TestNotifyFlags(t *testing.T) {
	const hook = "https://ci.example.org/hook"
	for _, x := range []struct {
		args []string
		want []belay.Notification // nil if the flags are refused
	}{
		{[]string{"--notify", hook}, []belay.Notification{{URL: hook}}},
		{[]string{"--notify", hook, "--notify", "${{ secrets.SLACK }}", "--notify-slack"}, []belay.Notification{
			{URL: hook, Format: belay.FormatSlack}, {URL: "${{ secrets.SLACK }}", Format: belay.FormatSlack},
		}},
		{[]string{"--notify", hook, "--notify-on", "failed,cancelled", "--notify-secret", "CI"}, []belay.Notification{
			{URL: hook, On: []belay.State{belay.Failed, belay.Cancelled}, Secret: "${{ secrets.CI }}"},
		}},
		{
			[]string{"--notify", `{"url": "` + hook + `", "on": ["succeeded"], "format": "slack"}`, "--notify-on", "failed"},
			[]belay.Notification{{URL: hook, On: []belay.State{belay.Succeeded}, Format: belay.FormatSlack}},
		},
		{[]string{"--notify-on", "failed"}, nil},
		{[]string{"--notify-secret", "CI"}, nil},
		{[]string{"--notify-slack"}, nil},
		{[]string{"--notify", "ftp://example.org/"}, nil},
		{[]string{"--notify", "https://ann:secret@example.org/"}, nil},
		{[]string{"--notify", hook, "--notify-on", "pending"}, nil},
		{[]string{"--notify", hook, "--notify-secret", "whsec_c2VjcmV0"}, nil},
		{[]string{"--notify", `{"url": "` + hook + `", "odd": 1}`}, nil},
	} {
		var f notifyFlags
		c := &cobra.Command{}
		f.register(c)
		if err := c.ParseFlags(x.args); err != nil {
			t.Fatal(err)
		}
		got, err := f.notifications()
		if !reflect.DeepEqual(got, x.want) || (err == nil) != (x.want != nil) {
			t.Errorf("%q: %+v, %v", x.args, got, err)
		}
	}
}
