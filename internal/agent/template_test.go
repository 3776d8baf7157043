package agent

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/belaydev/belay"
)

// Rule: a prompt becomes a part of one argument, or the standard input. If the command would
// interpret the prompt as an option, a space is put before the prompt.
func TestAPromptFillsATemplate(t *testing.T) {
	for _, c := range []struct {
		template Template
		prompt   string
		argv     []string
		stdin    string
	}{
		{Template{"a", placeholder}, "do it; $(x)\n'y'", []string{"a", "do it; $(x)\n'y'"}, ""},
		{Template{"a", placeholder}, "--force", []string{"a", " --force"}, ""},
		{Template{"a", "--", placeholder}, "--force", []string{"a", "--", "--force"}, ""},
		{Template{"a", "--prompt=" + placeholder}, "--force", []string{"a", "--prompt=--force"}, ""},
		{Template{"a", placeholder + placeholder}, "-x", []string{"a", " -x -x"}, ""},
		{Template{"a", placeholder}, "see " + placeholder, []string{"a", "see " + placeholder}, ""},
		{Template{"a", "-p"}, "--force", []string{"a", "-p"}, "--force"},
		{Template{"a", "--id", sessionPlace}, "x", []string{"a", "--id", "SESSION"}, "x"},
		{Template{"a", sessionPlace + placeholder}, sessionPlace, []string{"a", "SESSION" + sessionPlace}, ""},
	} {
		argv, stdin := c.template.Fill(c.prompt, "SESSION")
		if diff := cmp.Diff(c.argv, argv); diff != "" || string(stdin) != c.stdin {
			t.Errorf("%q with %q: %q %s", c.template, c.prompt, stdin, diff)
		}
	}
}

// Rule: CheckPrompt refuses a prompt that is too long for an argument of a program, and the error
// contains the limit.
func TestPromptsHaveLimits(t *testing.T) {
	argument, piped := Template{"a", "x" + placeholder}, Template{"a"}
	for _, c := range []struct {
		template Template
		prompt   string
		code     belay.Code
	}{
		{argument, "", belay.CodeInvalid}, {argument, " \n", belay.CodeInvalid}, {argument, "a\x00", belay.CodeInvalid},
		{argument, "a\xff", belay.CodeInvalid},
		{argument, strings.Repeat("x", argument.MaxPrompt()+1), belay.CodePayloadTooLarge},
		{piped, strings.Repeat("x", maxStdin+1), belay.CodePayloadTooLarge},
		// this prompt is six times as long in JSON
		{piped, strings.Repeat("\x01", 400<<10), belay.CodePayloadTooLarge},
	} {
		if err := c.template.CheckPrompt(c.prompt); belay.CodeOf(err) != c.code {
			t.Errorf("%d bytes for %q: %v", len(c.prompt), c.template, err)
		}
	}
	for _, template := range []Template{argument, piped} {
		if err := template.CheckPrompt(strings.Repeat("x", template.MaxPrompt())); err != nil {
			t.Errorf("%q: %v", template, err)
		}
	}
}

// Rule: Check refuses a command in which the prompt would name the program, and a command in which
// a shell would execute the prompt.
func TestUnsafeCommandsAreRefused(t *testing.T) {
	for _, bad := range []Template{
		nil, {""}, {placeholder}, {"a", "b\x00"}, {"sh", "-c", "agent " + placeholder}, {"/usr/bin/env", "bash", "-euc",
			placeholder}, {"timeout", "9", "zsh", "-lc", "a '" + placeholder + "'"},
	} {
		if bad.Check() == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
	for _, good := range []Template{{"sh", "-c", `agent "$1"`, "sh", placeholder}, {"agent", "-c", placeholder},
		{"sh", "run.sh", placeholder}, {"sh", "-c", "agent"}} {
		if err := good.Check(); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

// Rule: for every prompt, Fill changes only the arguments with a placeholder, puts the prompt there
// byte for byte, and makes no argument that the command could interpret as an option.
func FuzzFill(f *testing.F) {
	for _, prompt := range []string{"hello", "-rf", "--", "--output-format=text", "\n-x", placeholder,
		"$(id)`id`;'\"\\", "\u2014x", "- - -"} {
		f.Add(prompt)
	}
	f.Fuzz(func(t *testing.T, prompt string) {
		for _, template := range []Template{
			{"a", "-p", placeholder}, {"a", "-p", "--", placeholder}, {"a", "--say=" + placeholder, "b"},
			{"a", placeholder + "!", "-x", placeholder}, {"a", "-"},
		} {
			argv, stdin := template.Fill(prompt, "")
			if len(argv) != len(template) || template.piped() && string(stdin) != prompt {
				t.Fatalf("%q became %q and %q", template, argv, stdin)
			}
			ended := false
			for i, a := range argv {
				exact := strings.ReplaceAll(template[i], placeholder, prompt)
				if a != exact && (a != strings.ReplaceAll(template[i], placeholder, " "+prompt) || ended) {
					t.Errorf("%q became %q", template[i], a)
				}
				if strings.HasPrefix(a, "-") && !strings.HasPrefix(template[i], "-") && !ended {
					t.Errorf("%q became the option %q", template[i], a)
				}
				ended = ended || template[i] == "--"
			}
		}
	})
}

// Rule: configured settings take precedence over the settings of a preset. A preset's command gets
// the permission mode that the settings and the sandbox allow.
func TestConfigurationOverridesPreset(t *testing.T) {
	fresh, again := talk{session: "S"}, talk{session: "S", continued: true}
	line := func(s *Setup, p Prompt, t talk, walled bool) string {
		if !t.continued {
			t.message = p.Text
		}
		argv, stdin, env := s.command(&p, t, walled)
		return strings.Join(append(argv, string(stdin), env["IS_SANDBOX"]), " ")
	}
	const claude = "claude -p --output-format stream-json --verbose --permission-mode "
	s, err := NewSetup("claude", Setup{Env: []string{"MORE"}})
	if err != nil || s.Output != OutputStreamJSON || s.Env[len(s.Env)-1] != "MORE" {
		t.Fatalf("%+v, %v", s, err)
	}
	for _, c := range []struct {
		permissions string
		p           Prompt
		t           talk
		walled      bool
		want        string
	}{
		{"", Prompt{Text: "-v"}, fresh, true, claude + "bypassPermissions --session-id S -- -v  1"},
		{"auto", Prompt{Text: "-v"}, fresh, false, claude + "acceptEdits --session-id S -- -v  "},
		{"all", Prompt{Text: "-v"}, fresh, false, claude + "bypassPermissions --session-id S -- -v  1"},
		{"edits", Prompt{Text: permissionPlace}, fresh, true, claude + "acceptEdits --session-id S -- " +
			permissionPlace + "  "},
		{"", Prompt{Text: "-v"}, again, true, claude + "bypassPermissions --resume S -- " + goOn + "  1"},
		{
			"", Prompt{Text: "x", Chat: true, Stream: true}, fresh, true,
			strings.Replace(claude, "claude", "claude --include-partial-messages", 1) +
				"bypassPermissions --session-id S -- x  1",
		},
	} {
		s.Permissions = c.permissions
		if got := line(&s, c.p, c.t, c.walled); got != c.want {
			t.Errorf("%+v:\n%q, want\n%q", c, got, c.want)
		}
	}
	for permissions, want := range map[string]bool{"": true, "auto": true, "all": false, "edits": true} {
		s.Permissions = permissions
		if got := s.Unpermitted(false) != ""; got != want {
			t.Errorf("permissions %q without walls: %q", permissions, s.Unpermitted(false))
		}
	}
	s, err = NewSetup("claude", Setup{
		Command: Template{"mine", placeholder}, Resume: Template{"mine", "--resume", sessionPlace},
	})
	if got := line(&s, Prompt{Text: "x", Stream: true}, fresh, true); err != nil || got != "mine x  " {
		t.Errorf("instead of the configured command %q runs, %v", got, err)
	}
	if got := line(&s, Prompt{Text: "x"}, again, true); got != "mine --resume S  " {
		t.Errorf("a conversation is continued with %q", got)
	}
	if _, err := NewSetup("none such", Setup{}); belay.CodeOf(err) != belay.CodeInvalid {
		t.Errorf("got %v", err)
	}
	if _, err := NewSetup("", Setup{Command: Template{"mine"}, Resume: Template{"sh", "-c",
		placeholder}}); belay.CodeOf(err) != belay.CodeInvalid {
		t.Errorf("a command that has a shell read the prompt continues a conversation: %v", err)
	}
}
