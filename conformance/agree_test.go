package conformance_test

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/options"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// generatedPages are written from the tables themselves.
var generatedPages = []string{"options.md", "config.md", "metrics.md", "steps.md", "backends.md", "compatibility.md", "cli.md"}

var (
	// without matches what a sentence says of something that does nothing here.
	without = regexp.MustCompile(`(?i)\b(no|without|any) effect\b|\bno such \w+ is built\b|\bis not (built|implemented|supported)\b`)
	flagged = regexp.MustCompile("`--([a-z][a-z0-9-]+)[^`]*`")
	fielded = regexp.MustCompile("`([a-z_]+(?:\\.[a-z_]+)*)`")
	ends    = regexp.MustCompile(`[.:;] |\n\n|\n- |\n\|`)
)

// TestPagesAgree checks that no page contradicts the generated tables: a sentence that says that a flag or a field has no effect is about
// one without, and a page names a flag without effect only to say so.
func TestPagesAgree(t *testing.T) {
	t.Parallel()
	pages, err := filepath.Glob("../docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range append(pages, "../README.md") {
		if slices.Contains(generatedPages, filepath.Base(path)) {
			continue
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, problem := range contradictions(string(text)) {
			t.Errorf("%s: %s", path, problem)
		}
	}
}

// contradictions returns the sentences of a page that disagree with the tables of flags and fields.
func contradictions(text string) (found []string) {
	for _, sentence := range ends.Split(text, -1) {
		denied := without.MatchString(sentence)
		for _, m := range flagged.FindAllStringSubmatch(sentence, -1) {
			class, known := flagClass(m[1])
			switch {
			case known && denied && class != options.WithoutEffect:
				found = append(found, "options.md gives --"+m[1]+" an effect: "+sentence)
			case known && !denied && class == options.WithoutEffect:
				found = append(found, "options.md says that --"+m[1]+" has no effect: "+sentence)
			}
		}
		if !denied {
			continue
		}
		for _, m := range fielded.FindAllStringSubmatch(sentence, -1) {
			for _, f := range config.Fields() {
				if f.Path == m[1] && f.Class == config.Honoured {
					found = append(found, "config.md says that "+m[1]+" is honoured: "+sentence)
				}
			}
		}
	}
	return found
}

func flagClass(name string) (options.Class, bool) {
	for _, f := range options.Flags() {
		if f.Name == name {
			return f.Class, true
		}
	}
	return options.Class(0), false
}

// TestConfigTablesAgree checks that docs/compatibility.md and docs/config.md say the same of each field.
func TestConfigTablesAgree(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile(pageSource)
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parsePage(string(source))
	if err != nil {
		t.Fatal(err)
	}
	classes, compared := fieldClasses(), 0
	for i := range blocks {
		if blocks[i].kind != "config" {
			continue
		}
		for _, r := range blocks[i].rows {
			for _, item := range r.items {
				f, ok := classes[item]
				if !ok || f.Value != nil || len(f.By) > 0 {
					continue // it depends on the value or the backend, which the note says
				}
				compared++
				if r.works == "yes" && f.Class == config.Refused || r.works == "no" && f.Class == config.Honoured {
					t.Errorf("%s: %s is '%s', and docs/config.md says that %s is %s", pageSource, item, r.works, f.Path, f.Class)
				}
			}
		}
	}
	if compared < 50 {
		t.Errorf("%d fields were compared", compared)
	}
}

// fieldClasses returns the rows of docs/config.md by the names of docs/compatibility.md, for example ModelDynamicBatching.priority_levels.
func fieldClasses() map[string]config.Field {
	classes := map[string]config.Field{}
	for _, f := range config.Fields() {
		message := (&modelconfig.ModelConfig{}).ProtoReflect().Descriptor()
		var field protoreflect.FieldDescriptor
		for name := range strings.SplitSeq(f.Path, ".") {
			if message == nil {
				break
			}
			if field = message.Fields().ByName(protoreflect.Name(name)); field == nil {
				break
			}
			message = field.Message()
			if field.IsMap() {
				message = field.MapValue().Message()
			}
		}
		if field != nil {
			owner := field.ContainingMessage()
			classes[strings.TrimPrefix(string(owner.FullName()), string(owner.ParentFile().Package())+".")+"."+string(field.Name())] = f
		}
	}
	return classes
}

// TestContradictions checks that a page which disagrees with the tables is found. @ stands for the dashes of a flag, since this is no test of
// the flags.
func TestContradictions(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"Set `@cache-directory=/x` for more caches.":                                           1,
		"`@cache-directory` is accepted without effect.":                                       0,
		"`@gpu-fallback=cpu` has no effect.":                                                   1,
		"Start with `@gpu-fallback=cpu`. Other flags have no effect.":                          0,
		"`dynamic_batching.default_queue_policy` is taken, and no such policy is built.":       1,
		"| `@model-repository` | a folder |\n| `@http-thread-count` | accepted, no effect |\n": 0,
	} {
		if got := contradictions(strings.ReplaceAll(text, "@", "--")); len(got) != want {
			t.Errorf("%q: %q, want %d", text, got, want)
		}
	}
}
