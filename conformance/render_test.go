package conformance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tutti-server/tutti/internal/options"
)

// maxNamed is the number of tests that a row names; the rest are counted.
const maxNamed = 3

// render returns the page.
func render(t *testing.T, blocks []block, shown map[string][]string) string {
	t.Helper()
	var b strings.Builder
	for i := range blocks {
		bl := &blocks[i]
		switch bl.kind {
		case "":
			b.WriteString(bl.text)
		case "flags":
			renderFlags(t, &b)
		default:
			b.WriteString("| what | works | notes | shown by |\n|---|---|---|---|\n")
			for j := range bl.rows {
				r := &bl.rows[j]
				fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", title(bl.kind, r.title), r.works, r.note, names(r.tests(shown)))
			}
		}
	}
	return b.String()
}

// title formats the items of a row: as code, or in bold for a message.
func title(kind, text string) string {
	if kind == "features" {
		return text
	}
	var parts []string
	for list := range strings.SplitSeq(text, ";") {
		message, fields, ok := strings.Cut(list, ":")
		if !ok || kind != "messages" && kind != "config" {
			parts = append(parts, "`"+strings.TrimSpace(list)+"`")
			continue
		}
		for i, f := range strings.Split(fields, ",") {
			if i == 0 {
				f = "**" + strings.TrimSpace(message) + "** `" + strings.TrimSpace(f) + "`"
			} else {
				f = "`" + strings.TrimSpace(f) + "`"
			}
			parts = append(parts, f)
		}
	}
	return strings.Join(parts, " ")
}

func names(tests []string) string {
	more := ""
	if len(tests) > maxNamed {
		more = " and more" // without a number, so the page changes only when support changes
		tests = tests[:maxNamed]
	}
	for i := range tests {
		tests[i] = "`" + tests[i] + "`"
	}
	return strings.Join(tests, " ") + more
}

// renderFlags writes the rows of the flags, with the tests that use each flag.
func renderFlags(t *testing.T, b *strings.Builder) {
	t.Helper()
	list := options.Flags()
	users := flagUsers(t, list)
	b.WriteString("| flag | works | notes | used by |\n|---|---|---|---|\n")
	for i := range list {
		f := &list[i]
		if f.Class == options.Honoured && len(users[f.Name]) == 0 {
			t.Errorf("no test uses --%s", f.Name)
		}
		if len(users[f.Name]) == 0 {
			users[f.Name] = []string{"TestFlagsAreWhole"} // it covers every flag of the table
		}
		fmt.Fprintf(b, "| `--%s` | %s | %s | %s |\n", f.Name, works(f), note(f), names(users[f.Name]))
	}
}

// works returns how completely a flag matches tritonserver's: yes, partly or no.
func works(f *options.Flag) string {
	switch f.Class {
	case options.WithoutEffect:
		return "partly"
	case options.Refused:
		return "no"
	case options.Honoured:
	}
	return "yes"
}

func note(f *options.Flag) string {
	var parts []string
	if f.Own {
		parts = append(parts, "Tutti's own")
	}
	if f.Instead != "" {
		parts = append(parts, "deprecated, use "+strings.ReplaceAll(f.Instead, "|", `\|`))
	}
	switch f.Class {
	case options.WithoutEffect:
		parts = append(parts, "accepted without effect: "+f.Why)
	case options.Refused:
		parts = append(parts, "refused: "+f.Why)
	case options.Honoured:
	}
	return strings.Join(parts, "; ")
}

// flagUsers returns, for each flag, the tests whose source uses it.
func flagUsers(t *testing.T, list []options.Flag) map[string][]string {
	t.Helper()
	users := map[string][]string{}
	walkTests(t, func(path, text string) {
		if strings.HasSuffix(path, ".py") {
			return
		}
		for i := range list {
			if gives(text, list[i].Name, list[i].Env()) {
				users[list[i].Name] = append(users[list[i].Name], testName(path, path[strings.LastIndex(path, "/")+1:]))
			}
		}
	})
	for name := range users {
		slices.Sort(users[name])
	}
	return users
}

// gives reports whether a text contains the flag, or its environment variable, as a word.
func gives(text, name, env string) bool {
	for _, word := range []string{"--" + name, env} {
		for rest := text; ; {
			_, after, ok := strings.Cut(rest, word)
			if !ok {
				break
			}
			if after == "" || !strings.ContainsAny(after[:1], "-_abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789") {
				return true
			}
			rest = after
		}
	}
	return false
}
