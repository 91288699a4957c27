package dali

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"google.golang.org/protobuf/proto"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/core/tensor"
	"github.com/tutti-server/tutti/internal/files"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

const (
	// serializedFile and pythonFile are the files that Triton looks for, in this order.
	serializedFile = "model.dali"
	pythonFile     = "dali.py"
	scriptFile     = "model.py"

	// Parameters of config.pbtxt.
	threadsParam = "num_threads"
	splitParam   = "split_along_outer_axis"
	// placeParam is the parameter by which the script gets a place.
	placeParam = "TUTTI_DALI"
)

// place tells the script what it serves.
type place struct {
	// Dir is the version folder, File the name of the pipeline in it. Fallback is the name of the Python file that is tried when File is
	// missing or is no serialized pipeline.
	Dir, File, Fallback string
	// Batched is false if the configuration says max_batch_size: 0. One that does not say anything is completed from the pipeline.
	Batched bool
	Plugins []string // libraries with operators
}

// Load loads a pipeline in a process. The process then serves the first instance.
func (b *backend) Load(ctx context.Context, s backends.Settings) (backends.Model, error) {
	if ctx.Err() != nil {
		return nil, status.ErrCancelled
	}
	file := s.File(serializedFile)
	if err := checkName(&s, file); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(s.Dir)
	if err != nil {
		return nil, status.Errorf(status.Internal, "%s: %w", failedLoad(&s), err)
	}
	served := file // for messages
	if !files.IsRegular(file) {
		served = filepath.Join(filepath.Dir(file), pythonFile)
	}
	if !files.IsRegular(served) {
		return nil, config.MissingFile(status.Errorf(status.NotFound, "%s: expected a serialized pipeline in '%s', or '%s' beside it, found neither",
			failedLoad(&s), file, pythonFile), file)
	}
	text, err := json.Marshal(place{
		Dir: dir, File: filepath.Base(file), Fallback: pythonFile, Batched: s.Config.GetMaxBatchSize() > 0 || !unbatched(s.ModelDir), Plugins: b.plugins,
	})
	if err != nil {
		return nil, status.Errorf(status.Internal, "%s: %w", failedLoad(&s), err)
	}
	inner := s
	inner.Dir, inner.Filename = b.folder.Path(), ""
	inner.EditConfigs(func(cfg *modelconfig.ModelConfig) {
		cfg.DefaultModelFilename = scriptFile
		if cfg.Parameters == nil {
			cfg.Parameters = map[string]*modelconfig.ModelParameter{}
		}
		cfg.Parameters[placeParam] = &modelconfig.ModelParameter{StringValue: string(text)}
	})
	m, err := b.host.Load(ctx, inner)
	if err != nil {
		return nil, b.explain(&s, served, err)
	}
	w, ok := m.(worked)
	if !ok {
		return nil, status.Errorf(status.Internal, "%s: the backend of Python models returned a %T", failedLoad(&s), m)
	}
	return newModel(b, &s, served, w), nil
}

// fileName matches the names that Triton's DALI backend allows.
var fileName = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

// checkName refuses a file whose name Triton's DALI backend refuses, in its words.
func checkName(s *backends.Settings, file string) error {
	base := filepath.Base(file)
	if fileName.MatchString(base) {
		return nil
	}
	at := strings.IndexFunc(base, func(r rune) bool { return !fileName.MatchString(string(r)) })
	first := []rune(base[max(at, 0):])[0]
	return status.Errorf(status.InvalidArg, "%s: Model file name '%s' contains an invalid character: '%c'\nAllowed characters are: a-z, A-Z, 0-9, _, ., -",
		failedLoad(s), base, first)
}

// zeroBatch matches the field max_batch_size with a value of zero, outside of comments.
var zeroBatch = regexp.MustCompile(`(?m)^[^#\n]*\bmax_batch_size\s*:\s*[+-]?(0[xX])?0+\b`)

// unbatched reports whether config.pbtxt in a model's folder says max_batch_size: 0, which the parsed configuration cannot: there it is
// also 0 if the file does not have the field.
func unbatched(dir string) bool {
	text, err := os.ReadFile(filepath.Join(dir, "config.pbtxt"))
	return err == nil && zeroBatch.Match(text)
}

// refusal begins the text of an error that the script has raised, after the name of its type.
const refusal = "Refusal: "

// explain returns the error of a failed load: the text that the script gave for the user, or that of an exception in the user's code with
// its traceback. The user's file stands in place of the script.
func (b *backend) explain(s *backends.Settings, file string, err error) error {
	text := status.Text(err)
	if _, said, ok := strings.Cut(text, refusal); ok {
		if at := strings.LastIndex(said, "\n\nAt:\n"); at >= 0 {
			said = said[:at]
		}
		return status.Errorf(status.CodeOf(err), "%s from '%s': %s", failedLoad(s), file, said)
	}
	lines := slices.DeleteFunc(strings.Split(text, "\n"), func(line string) bool { return strings.HasPrefix(line, "  "+b.folder.Path()) }) // frames of scripts
	text = strings.TrimRight(strings.ReplaceAll(strings.Join(lines, "\n"), b.script(), file), "\n")
	if text == status.Text(err) {
		return err
	}
	return &status.Error{Code: status.CodeOf(err), Reason: status.ReasonOf(err), RetryAfter: status.RetryAfter(err), Err: err, Msg: text}
}

// worked is the model of the backend that runs Python models.
type worked interface {
	backends.ConfigCompleter
	backends.ReadinessChecker
	backends.Reporter
	backends.Degrader
}

// model is a loaded pipeline: a Python model whose configuration does not show that it is one.
type model struct {
	worked
	b         *backend
	s         backends.Settings
	file      string
	completed *modelconfig.ModelConfig // nil when the given configuration is complete
}

func newModel(b *backend, s *backends.Settings, file string, w worked) *model {
	m := &model{worked: w, b: b, s: *s, file: file}
	if c := w.CompletedConfig(); c != nil {
		m.completed = proto.CloneOf(c)
		m.completed.DefaultModelFilename = s.Config.GetDefaultModelFilename()
		delete(m.completed.Parameters, placeParam)
	}
	return m
}

// NewInstance starts a process, or takes that of Load, and builds the pipeline in it.
func (m *model) NewInstance(ctx context.Context, at tensor.Place) (backends.Instance, error) {
	x, err := m.worked.NewInstance(ctx, at)
	if err != nil {
		return nil, m.b.explain(&m.s, m.file, err)
	}
	return x, nil
}

// CompletedConfig returns the configuration with what the pipeline declares, or nil.
func (m *model) CompletedConfig() *modelconfig.ModelConfig { return m.completed }
