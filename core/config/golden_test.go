package config_test

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"

	"tutti/core/config"
)

var update = flag.Bool("update", false, "write the golden files anew")

// TestGolden runs every testdata file: config.pbtxt in a folder named m, and what
// comes of it: the parser's error, every problem, or the endpoint's JSON.
//
// shows: config.fields config.unsupported
func TestGolden(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden files: %v", err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			t.Parallel()
			archive, err := txtar.ParseFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for i := 0; i+1 < len(archive.Files); i += 2 {
				archive.Files[i+1].Data = outcome(t, archive.Files[i].Data)
			}
			got := txtar.Format(archive)
			if *update {
				if err := os.WriteFile(file, got, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func outcome(t *testing.T, text []byte) []byte {
	t.Helper()
	cfg, err := config.Parse("m/config.pbtxt", text)
	if err != nil {
		return []byte(err.Error() + "\n")
	}
	if err := config.Normalise(cfg, "m"); err != nil {
		return []byte(err.Error() + "\n")
	}
	var out bytes.Buffer
	for _, p := range config.Check(cfg) {
		out.WriteString(p.Error() + "\n")
	}
	if out.Len() > 0 {
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
