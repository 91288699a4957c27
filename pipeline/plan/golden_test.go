package plan_test

import (
	"bytes"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/goldentest"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// repository is a Lookup of the models of a golden file. Parameters of a model set properties that a configuration
// has no field for: "version" (1 when absent) is the loaded version, "fails" is the error that makes the model
// unusable, "places" lists "host" and device numbers, and "free" lists its Unchecked outputs.
type repository map[string]*modelconfig.ModelConfig

func (r repository) Model(name string, version int64) (plan.Model, error) {
	cfg := r[name]
	if cfg == nil {
		return plan.Model{}, status.Errorf(status.NotFound, "model '%s' is not found", name)
	}
	if text, fails := cfg.Parameters["fails"]; fails {
		if strings.HasPrefix(text.StringValue, "load:") {
			return plan.Model{}, status.Errorf(status.Unavailable, "%s", text.StringValue)
		}
		return plan.Model{}, status.Errorf(status.InvalidArg, "%s", text.StringValue)
	}
	sig := config.SignatureOf(cfg)
	sig.Version = 1
	for i := range sig.Outputs {
		_, sig.Outputs[i].Unchecked = cfg.Parameters["free"]
	}
	if cfg.Parameters["version"].GetStringValue() == "3" {
		sig.Version = 3
	}
	if version != -1 && version != sig.Version {
		return plan.Model{}, status.Errorf(status.NotFound, "model '%s' version %d is not found", name, version)
	}
	m := plan.Model{Signature: sig, Idempotent: config.Idempotent(cfg), Formats: config.Formats(cfg), Sequence: cfg.GetSequenceBatching() != nil, Places: places(cfg.Parameters["places"].GetStringValue())}
	if config.IsEnsemble(cfg) {
		m.Ensemble = cfg
	}
	return m, nil
}

func places(text string) []tensor.Place {
	var list []tensor.Place
	for word := range strings.FieldsSeq(text) {
		if id, err := strconv.ParseInt(word, 10, 16); err == nil {
			list = append(list, tensor.Place{Kind: tensor.Device, ID: int16(id)})
		} else {
			list = append(list, tensor.Place{})
		}
	}
	return list
}

// TestGolden runs every testdata file. models/NAME.pbtxt are the models; each other .pbtxt is an ensemble, followed
// by its expected results: CASE.plan, CASE.dot, CASE.svg or CASE.after-PASS, or an error.
// shows: config.ensembles
func TestGolden(t *testing.T) {
	t.Parallel()
	goldentest.Archives(t, func(t *testing.T, a *txtar.Archive) {
		t.Helper()
		var cfg *modelconfig.ModelConfig
		repo := models(t, a)
		for i := range a.Files {
			f := &a.Files[i]
			switch {
			case strings.HasPrefix(f.Name, "models/"):
			case strings.HasSuffix(f.Name, ".pbtxt"):
				cfg = parse(t, f)
			default:
				f.Data = outcome(f.Name, cfg, repo)
			}
		}
	})
}

func models(t *testing.T, archive *txtar.Archive) repository {
	t.Helper()
	repo := repository{}
	for i := range archive.Files {
		if f := &archive.Files[i]; strings.HasPrefix(f.Name, "models/") {
			cfg := parse(t, f)
			repo[cfg.Name] = cfg
		}
	}
	return repo
}

func parse(t *testing.T, f *txtar.File) *modelconfig.ModelConfig {
	t.Helper()
	cfg, err := config.Parse(f.Name, f.Data)
	if err != nil {
		t.Fatal(err)
	}
	if err := config.Normalise(cfg, strings.TrimSuffix(filepath.Base(f.Name), ".pbtxt")); err != nil {
		t.Fatal(err)
	}
	return cfg
}

func outcome(name string, cfg *modelconfig.ModelConfig, repo repository) []byte {
	if _, pass, ok := strings.Cut(name, ".after-"); ok {
		text, err := plan.Stages(cfg, repo, pass)
		if err != nil {
			text = refusal(err)
		}
		return []byte(text)
	}
	p, err := plan.Compile(cfg, 1, repo)
	if err != nil {
		return []byte(refusal(err))
	}
	var b bytes.Buffer
	switch filepath.Ext(name) {
	case ".dot":
		err = p.DOT(&b)
	case ".svg":
		err = p.SVG(&b, nil)
	default:
		b.WriteString(p.Text())
	}
	if err != nil {
		return []byte(err.Error() + "\n")
	}
	return b.Bytes()
}

// refusal returns an error's text with its code and its field.
func refusal(err error) string {
	d, ok := config.Diagnosed(err)
	if !ok {
		return err.Error() + "\n"
	}
	return fmt.Sprintf("%s: %s\n%s\n", d.Code, d.Field, err)
}
