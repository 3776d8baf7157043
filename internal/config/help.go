package config

import (
	"fmt"
	"strings"
)

// Table returns the reference of all keys as a Markdown table, for docs/configuration.md.
func Table() string {
	var b strings.Builder
	b.WriteString("| in the file | environment | flag | default | what it does |\n|---|---|---|---|---|\n")
	for _, k := range keys {
		fmt.Fprintf(&b, "| `%s` | `%s` | `--%s` | %s | %s |\n", k.Name, k.Env(), k.Flag(), code(k.Default()), k.Doc)
	}
	return b.String()
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}
