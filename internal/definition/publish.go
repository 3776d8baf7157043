package definition

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Published returns the JSON Schema of the format, for editors.
func Published() []byte {
	s := schemaOf(&Format)
	s["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	s["title"] = "Belay workflow"
	var cases []any
	for i := range Kinds {
		k := &Kinds[i]
		with := schemaOf(&k.With)
		then := map[string]any{"properties": map[string]any{"with": with}}
		if with["required"] != nil || with["oneOf"] != nil {
			then["required"] = []any{"with"}
		}
		cases = append(cases, map[string]any{
			"if": map[string]any{"properties": map[string]any{"uses": map[string]any{"const": k.Name}},
				"required": []any{"uses"}},
			"then": then,
		})
	}
	if task, ok := below(s, "properties", "tasks", "items"); ok {
		task["allOf"] = cases
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(err) // the schema consists of maps, lists and texts
	}
	return append(data, '\n')
}

// below returns the map under keys of maps within each other.
func below(m map[string]any, keys ...string) (_ map[string]any, ok bool) {
	for _, k := range keys {
		if m, ok = m[k].(map[string]any); !ok {
			return nil, false
		}
	}
	return m, true
}

// schemaOf returns the JSON Schema of a type.
func schemaOf(t *Type) map[string]any {
	if len(t.Or) > 0 {
		one := *t
		one.Or = nil
		all := []any{schemaOf(&one)}
		for i := range t.Or {
			all = append(all, schemaOf(&t.Or[i]))
		}
		return map[string]any{"anyOf": all}
	}
	s := map[string]any{}
	switch t.Kind {
	case kindText, kindDuration:
		s["type"] = "string"
		textRules(s, t)
	case kindExpression:
		s["type"] = []any{"string", "boolean"}
	case kindNumber:
		s["type"], s["minimum"], s["maximum"] = "integer", t.Min, t.Max
	case kindBool:
		s["type"] = "boolean"
	case kindList:
		s["type"] = "array"
		if t.Min > 0 {
			s["minItems"] = t.Min
		}
		if t.Max > 0 {
			s["maxItems"] = t.Max
		}
		if t.Item != nil {
			s["items"] = schemaOf(t.Item)
		}
	case kindMap:
		s["type"] = "object"
		mapRules(s, t)
	case kindSchema:
		s["$ref"] = "https://json-schema.org/draft/2020-12/schema"
	}
	if t.Expression && t.Kind != kindAny && t.Kind != kindText && t.Kind != kindDuration {
		return map[string]any{"anyOf": []any{s, map[string]any{"type": "string", "pattern": `\$\{\{`}}}
	}
	return s
}

func textRules(s map[string]any, t *Type) {
	switch {
	case t.Expression:
	case len(t.Enum) > 0:
		s["enum"] = t.Enum
	case t.Pattern != "":
		s["pattern"] = "^(?:" + t.Pattern + ")$"
	case t.Kind == kindDuration:
		s["pattern"] = `^([0-9.]+(ns|us|µs|ms|s|m|h))+$`
	default:
		if t.Min > 0 {
			s["minLength"] = t.Min
		}
		if t.Max > 0 && t.Max < MaxSize {
			s["maxLength"] = t.Max
		}
	}
	if t.Example != "" {
		s["examples"] = []any{t.Example}
	}
}

func mapRules(s map[string]any, t *Type) {
	if t.Fields == nil {
		if t.Item != nil {
			s["additionalProperties"] = schemaOf(t.Item)
		}
		return
	}
	properties := map[string]any{}
	var required []any
	for i := range t.Fields {
		f := &t.Fields[i]
		p := schemaOf(&f.Type)
		p["description"] = f.Doc
		properties[f.Name] = p
		if f.Required {
			required = append(required, f.Name)
		}
	}
	s["properties"], s["additionalProperties"] = properties, false
	if required != nil {
		s["required"] = required
	}
	var choices []any
	for _, name := range t.OneOf {
		choices = append(choices, map[string]any{"required": []any{name}})
	}
	if choices != nil {
		s["oneOf"] = choices
	}
}

// Reference returns the reference of all keys in Markdown.
func Reference() string {
	var b strings.Builder
	b.WriteString("### The document\n\n")
	table(&b, Format.Fields)
	b.WriteString("\n### on\n\n[triggers.md](triggers.md) describes schedules and webhooks.\n\n")
	table(&b, onType.Fields)
	b.WriteString("\n### on: schedules\n\n")
	table(&b, scheduleType.Fields)
	b.WriteString("\n### on: webhooks\n\n")
	table(&b, webhookType.Fields)
	b.WriteString("\n### hmac\n\n")
	table(&b, hmacType.Fields)
	b.WriteString("\n### signal\n\n")
	table(&b, signalType.Fields)
	b.WriteString("\n### notify\n\n" +
		"A list of maps with these keys, which [notifications.md](notifications.md) describes:\n\n")
	table(&b, notifyType.Fields)
	b.WriteString("\n### A task\n\n")
	table(&b, taskFields)
	b.WriteString("\n### retry\n\n")
	table(&b, retryType.Fields)
	b.WriteString("\n### concurrency\n\n")
	table(&b, concurrencyType.Fields)
	b.WriteString("\n### requires\n\n")
	table(&b, requiresType.Fields)
	b.WriteString("\n### on_failure\n\nA text, or a map with this key:\n\n")
	table(&b, onFailureType.Or[0].Fields)
	for i := range Kinds {
		fmt.Fprintf(&b, "\n### uses: %s\n\n%s\n", Kinds[i].Name, wrapped(Kinds[i].Doc))
		if len(Kinds[i].With.Fields) > 0 {
			b.WriteString("\n")
			table(&b, Kinds[i].With.Fields)
		}
	}
	return b.String()
}

// wrapped breaks a text into lines of at most 120 columns.
func wrapped(s string) string {
	const width = 120
	var lines []string
	line := ""
	for _, word := range strings.Fields(s) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			lines = append(lines, line)
			line = ""
		}
		if line != "" {
			line += " "
		}
		line += word
	}
	return strings.Join(append(lines, line), "\n")
}

func table(b *strings.Builder, fields []Field) {
	b.WriteString("| key | value | default | meaning |\n|---|---|---|---|\n")
	for i := range fields {
		f := &fields[i]
		name := "`" + f.Name + "`"
		if f.Required {
			name += " (required)"
		}
		value := strings.ReplaceAll(f.Type.described(), "|", `\|`)
		if len(f.Type.Enum) > 0 {
			value = "`" + strings.Join(f.Type.Enum, "`, `") + "`"
			for j := range f.Type.Or {
				value += " or " + f.Type.Or[j].described()
			}
		}
		if f.Type.Kind == kindAny {
			value = kindAny
		}
		def := ""
		if f.Default != "" {
			def = "`" + f.Default + "`"
			if strings.Contains(f.Default, " ") {
				def = f.Default
			}
		}
		fmt.Fprintf(b, "| %s | %s | %s | %s |\n", name, value, def, strings.ReplaceAll(f.Doc, "|", `\|`))
	}
}
