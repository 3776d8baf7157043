package agentapi

import (
	"maps"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/belaydev/belay"
	"github.com/belaydev/belay/internal/agent"
)

// The labels of a job's execution by which lists tell jobs apart without their inputs: the first line of the prompt,
// the repository and the ref.
const (
	LabelPrompt = "prompt"
	LabelRepo   = "repo"
	LabelRef    = "ref"
)

const (
	// maxTitle is the largest number of characters of a title, and titleScan the number of bytes of a prompt in
	// which it begins.
	maxTitle  = 80
	titleScan = 4 << 10
)

// Title returns the first line of a prompt that shows anything, without characters that a screen would not show as
// they are: control characters, and those that hide text or change its direction.
func Title(prompt string) string {
	prompt = prompt[:min(len(prompt), titleScan)]
	for line := range strings.FieldsFuncSeq(prompt, func(r rune) bool { return r == '\n' || r == '\r' }) {
		line = strings.Map(func(r rune) rune {
			switch {
			case unicode.IsSpace(r):
				return ' '
			case r == utf8.RuneError, !unicode.IsPrint(r):
				return -1
			}
			return r
		}, line)
		if line = strings.Join(strings.Fields(line), " "); line != "" {
			if r := []rune(line); len(r) > maxTitle {
				line = string(r[:maxTitle-1]) + "…"
			}
			return cutBytes(line)
		}
	}
	return ""
}

// cutBytes cuts a title to the size of a label's value.
func cutBytes(s string) string {
	const most = belay.MaxName
	for len(s) > most {
		_, n := utf8.DecodeLastRuneInString(s)
		s = s[:len(s)-n]
	}
	return s
}

// labelled adds the title of a prompt, its repository and its ref to the labels of a job, unless the caller has set
// them. A value that is too long for a label is left out.
func labelled(p *agent.Prompt, labels map[string]string) map[string]string {
	all := maps.Clone(labels)
	for name, value := range map[string]string{LabelPrompt: Title(p.Text), LabelRepo: p.Repo, LabelRef: p.Ref} {
		if _, ok := all[name]; ok || value == "" || len(value) > belay.MaxName || len(all) >= belay.MaxLabels {
			continue
		}
		if all == nil {
			all = make(map[string]string)
		}
		all[name] = value
	}
	return all
}
