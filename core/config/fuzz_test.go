package config_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"golang.org/x/tools/txtar"

	"tutti/core/config"
)

// FuzzParse feeds arbitrary text all the way through the package: nothing may
// panic, and what parses must give JSON that parses.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for i := 0; i < len(archive.Files); i += 2 {
			f.Add(archive.Files[i].Data)
		}
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		cfg, err := config.Parse("fuzz", text)
		if err != nil {
			return
		}
		// A name that is not the folder's is an error, and no reason to stop here.
		_ = config.Normalise(cfg, "m")
		config.Check(cfg)
		sig := config.SignatureOf(cfg)
		if _, err := config.Agree(config.Complete(cfg, sig), sig); err != nil && config.Validate(cfg) == nil {
			t.Errorf("a valid configuration does not agree with itself: %v", err)
		}
		raw, err := config.JSON(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if !json.Valid(raw) {
			t.Errorf("not JSON: %s", raw)
		}
	})
}
