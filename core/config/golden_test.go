package config_test

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// TestGolden runs every testdata file: a config.pbtxt in a folder named m, and the expected result: the parser's
// error, every problem, or the endpoint's JSON.
// shows: config.fields config.unsupported
func TestGolden(t *testing.T) {
	t.Parallel()
	goldentest.Archives(t, func(t *testing.T, a *txtar.Archive) {
		t.Helper()
		for i := 0; i+1 < len(a.Files); i += 2 {
			a.Files[i+1].Data = outcome(t, a.Files[i].Name, a.Files[i].Data)
		}
	})
}

func outcome(t *testing.T, name string, text []byte) []byte {
	t.Helper()
	var out bytes.Buffer
	cfg, list := inspect(t, name, text)
	for i := range list {
		out.WriteString(list[i].String() + "\n")
	}
	if config.HasFault(list) {
		return out.Bytes()
	}
	raw, err := config.JSON(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Indent(&out, raw, "", "  "); err != nil {
		t.Fatalf("JSON does not parse: %v\n%s", err, raw)
	}
	return append(out.Bytes(), '\n')
}

// inspect reads NAME.pbtxt as the file of a model m and NAME.json as an override. NAME.strict.pbtxt is not
// completed, and NAME.fallback.pbtxt has its GPUs replaced by the CPU.
func inspect(t *testing.T, name string, text []byte) (*modelconfig.ModelConfig, []config.Diagnostic) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "m")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s := config.Source{Dir: dir, Name: "m"}
	var o *config.Options
	if strings.HasSuffix(name, ".json") {
		s.Override = string(text)
	} else if err := os.WriteFile(filepath.Join(dir, config.FileName), text, 0o600); err != nil {
		t.Fatal(err)
	}
	switch {
	case strings.HasSuffix(name, ".strict.pbtxt"):
		o = &config.Options{StrictEnsembleConfig: true, NoAutoComplete: true}
	case strings.HasSuffix(name, ".fallback.pbtxt"):
		o = &config.Options{GPUFallback: true}
	}
	cfg, list := config.Read(s, o)
	for i := range list {
		for _, text := range []*string{&list[i].File, &list[i].Reason} {
			*text = strings.ReplaceAll(*text, dir, "m")
		}
	}
	return cfg, list
}

// TestEveryRuleHasCase checks that every rule of this package has a golden file.
func TestEveryRuleHasCase(t *testing.T) {
	t.Parallel()
	var all []byte
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*_test.go", "../../pipeline/plan/testdata/*.txtar", "../../cmd/tutti/testdata/script/validate*.txtar", "../../cmd/tutti/testdata/mistakes/*.txtar"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, more...)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, text...)
	}
	seen := map[config.Code]bool{}
	for _, r := range config.Rules() {
		if seen[r.Code] {
			t.Errorf("%s is listed twice", r.Code)
		}
		seen[r.Code] = true
		if !bytes.Contains(all, []byte(r.Code)) {
			t.Errorf("%s (%s) has no golden case", r.Code, r.Doc)
		}
	}
}
