package config_test

import (
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/core/config"
)

// FuzzParse passes arbitrary text through the whole package. Nothing may panic, and a parsed configuration must
// give valid JSON.
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
		config.NewPositions("fuzz", text)
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
		if again, err := config.Parse("text", config.Text(cfg)); err != nil || !proto.Equal(cfg, again) {
			t.Errorf("the text of it reads otherwise: %v\n%s", err, config.Text(cfg))
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

// FuzzParseJSON parses arbitrary overrides. Nothing may panic, and a parsed one must print as JSON that parses
// again.
func FuzzParseJSON(f *testing.F) {
	archive, err := txtar.ParseFile("testdata/override.txtar")
	if err != nil {
		f.Fatal(err)
	}
	for i := 0; i < len(archive.Files); i += 2 {
		f.Add(string(archive.Files[i].Data))
	}
	f.Add(`{"name":"m","max_batch_size":4,"input":[{"name":"I","data_type":"TYPE_FP32","dims":["-1",3]}]}`)
	f.Add(`{"ensembleScheduling":{"step":[{"modelName":"a","modelVersion":"-1","inputMap":{"A":"B"}}]}}`)
	f.Add(`{"parameters":{"k":{"string_value":"v"}},"dynamic_batching":{"priority_queue_policy":{"1":{}}},"version_policy":{"all":{}}}`)
	f.Fuzz(func(t *testing.T, text string) {
		cfg, err := config.ParseJSON(text)
		if err != nil {
			return
		}
		_ = config.Normalise(cfg, "m") // a different name is an error that does not matter here
		config.Inspect(cfg)
		config.Hints(cfg)
		raw, err := config.JSON(cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := config.ParseJSON(string(raw)); err != nil {
			t.Errorf("the printed configuration does not parse: %v\n%s", err, raw)
		}
	})
}
