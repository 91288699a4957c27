// Package lint finds the problems of model repositories: in configurations, in folders, in the compiled ensembles,
// and in model files if their runtimes are on this machine. A report is text, JSON, or SARIF for code scanners.
package lint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/backends"
	"github.com/tutti-server/tutti/core/config"
	"github.com/tutti-server/tutti/core/status"
	"github.com/tutti-server/tutti/internal/repository"
	"github.com/tutti-server/tutti/internal/runtimes"
	"github.com/tutti-server/tutti/internal/table"
	"github.com/tutti-server/tutti/pipeline/plan"
	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Settings select the repositories and how to read them.
type Settings struct {
	// Repository was opened over Roots with ConfigName; the report contains its failures.
	Repository *repository.Repository
	Roots      []string           // the folders that hold models
	Backends   *backends.Registry // the backends that models may name
	// ConfigName, unless empty, selects configs/NAME.pbtxt in the folders of models that have this file.
	ConfigName string
	Options    config.Options // the options for reading configurations
	// BackendConfig has the values of --backend-config by backend, which say where libraries are.
	BackendConfig map[string]map[string]string

	_ struct{}
}

// Report lists the problems of repositories.
type Report struct {
	Models      int                 `json:"models"`      // the number of models
	Diagnostics []config.Diagnostic `json:"diagnostics"` // sorted by model. Never nil.
}

// Examine checks every model.
func Examine(s Settings) *Report {
	e := &examiner{
		Settings: s, configs: map[string]*modelconfig.ModelConfig{}, places: map[string]*config.Positions{}, list: []config.Diagnostic{},
	}
	names := s.Repository.Models()
	if len(names) == 0 {
		e.add(config.Errorf(config.NoModels, "", "%s", strings.Join(e.Repository.EmptyRoots(), "; ")), "", "")
	}
	for _, name := range names {
		e.read(name)
	}
	failures := map[string]error{}
	for _, f := range e.Repository.Failures() {
		failures[f.Model] = f.Err
	}
	for _, name := range e.inOrder(names) {
		if e.faultless(name) {
			e.loaded(name, failures[name])
		}
	}
	// Within a model the order of discovery stays.
	slices.SortStableFunc(e.list, func(a, b config.Diagnostic) int { return strings.Compare(a.Model, b.Model) })
	return &Report{Models: len(names), Diagnostics: e.list}
}

// The formats of a report.
const (
	Text  = "text"
	JSON  = "json"
	SARIF = "sarif"
)

// Write writes the report in one of the formats. version is the program's version.
func (r *Report) Write(w io.Writer, format, version string) error {
	switch format {
	case JSON:
		return writeJSON(w, r)
	case SARIF:
		return writeJSON(w, newSARIF(r.Diagnostics, version))
	}
	return r.writeText(w)
}

func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}

func (r *Report) writeText(w io.Writer) error {
	var b strings.Builder
	counts := map[config.Severity]int{}
	for i := range r.Diagnostics {
		counts[r.Diagnostics[i].Severity]++
		b.WriteString(r.Diagnostics[i].String() + "\n")
	}
	fmt.Fprintf(&b, "%s in %s\n", strings.Join([]string{
		table.Count(counts[config.Fault], "error"), table.Count(counts[config.Warning], "warning"), table.Count(counts[config.Notice], "notice"),
	}, ", "), table.Count(r.Models, "model"))
	_, err := io.WriteString(w, b.String())
	return err
}

// examiner collects the problems of repositories.
type examiner struct {
	Settings

	configs map[string]*modelconfig.ModelConfig // normalised, by model
	places  map[string]*config.Positions
	list    []config.Diagnostic
}

// inOrder sorts models so that an ensemble follows the models of its steps: its check depends on their problems.
func (e *examiner) inOrder(names []string) []string {
	var list []string
	seen := map[string]bool{}
	var visit func(name string)
	visit = func(name string) {
		if seen[name] {
			return
		}
		seen[name] = true
		for _, st := range config.StepModels(e.configs[name]) {
			visit(st.GetModelName())
		}
		list = append(list, name)
	}
	for _, name := range names {
		visit(name)
	}
	return list
}

// read checks the configuration and the folder of a model.
func (e *examiner) read(name string) {
	dir, twin := e.Repository.Folder(name)
	if twin != "" {
		e.add(config.Errorf(config.Duplicate, "", "model '%s' is in more than one repository: '%s' and '%s'", name, dir, twin), name, twin)
		return
	}
	src := config.Source{Dir: dir, Name: name, ConfigName: e.ConfigName}
	if _, places, err := src.Open(); err == nil {
		e.places[name] = places
	}
	options := e.Options
	machine := e.Repository.Options()
	options.Params, options.Devices, options.Auto = e.Backends.Params, machine.Devices, machine.Auto
	cfg, list := config.Read(src, &options)
	for i := range list {
		e.diagnose(list[i], name, dir)
	}
	if cfg == nil {
		return
	}
	e.configs[name] = cfg
	e.folder(name, dir, cfg)
	if err := config.ReadLabels(cfg, dir, config.SignatureOf(cfg)); err != nil {
		e.add(err, name, dir)
	}
	known := e.Backends.For(cfg, dir, "", e.BackendConfig) != nil || e.Backends.ByPlatform(cfg.GetPlatform()) != nil
	if cfg.GetBackend() != "" && !known {
		field := "backend"
		if p := e.places[name]; p != nil && !p.Has(field) {
			field = "platform" // the backend was deduced from it
		}
		e.add(config.UnknownBackend(name, cfg.GetBackend(), field, e.Backends.Names()), name, dir)
	}
}

func (e *examiner) folder(name, dir string, cfg *modelconfig.ModelConfig) {
	versions, ignored, err := repository.VersionFolders(dir)
	if err != nil {
		e.add(config.Errorf(config.Unreadable, "", "the folder of model '%s' cannot be read: %w", name, err), name, dir)
		return
	}
	if len(versions) == 0 && config.NeedsVersion(cfg, &e.Options) {
		e.add(config.NoVersionFolder(name, ignored), name, dir)
		return
	}
	for _, folder := range ignored {
		e.diagnose(config.IgnoredVersionFolder(name, folder), name, filepath.Join(dir, folder))
	}
	if len(versions) == 0 && config.IsEnsemble(cfg) {
		e.diagnose(notice(config.VersionlessEnsemble, fmt.Sprintf("ensemble '%s' has no version folder and is version 1", name)), name, dir)
	}
}

// loaded adds the problems of loading a model. A missing runtime is only a warning; ensembles over such a model are
// checked against its declared inputs and outputs.
func (e *examiner) loaded(name string, failure error) {
	dir, _ := e.Repository.Folder(name)
	cfg := e.configs[name]
	if config.IsEnsemble(cfg) {
		e.compile(cfg, name, dir)
		return
	}
	for _, err := range split(failure) {
		if err != nil && status.CodeOf(err) == status.Unavailable {
			e.unserved(name, dir, cfg.GetBackend(), fmt.Sprintf("model '%s' was not loaded: %v", name, err))
		} else {
			e.add(err, name, dir)
		}
	}
}

// unserved adds a warning that something was not checked because a model of the backend cannot run here.
func (e *examiner) unserved(model, dir, backend, reason string) {
	d := notice(config.NoRuntime, reason)
	d.Fix = "" // if it cannot be fetched, the reason names what is missing
	for _, r := range runtimes.List() {
		if r.Name == strings.Replace(backend, "torch_aoti", "pytorch", 1) {
			d.Fix = "run 'tutti runtime fetch " + r.Name + "' to have the model's file checked too"
		}
	}
	e.diagnose(d, model, dir)
}

// compile compiles an ensemble if the inputs and outputs of its models are known.
func (e *examiner) compile(cfg *modelconfig.ModelConfig, name, dir string) {
	p, err := plan.Compile(cfg, 1, e)
	if err == nil {
		err = config.CheckAPIs(p.Config)
	}
	var unready *unready
	if !errors.As(err, &unready) {
		e.add(err, name, dir)
		return
	}
	if unready.blind != "" {
		e.unserved(name, dir, unready.blind, fmt.Sprintf("ensemble '%s' was not compiled: the inputs and outputs of model '%s' are not declared, and it was not loaded", name, unready.model))
		return
	}
	d, _ := config.Diagnosed(err)
	d.Reason = fmt.Sprintf("ensemble '%s' depends on '%s' which is not valid", name, unready.model)
	d.Fix = "correct model '" + unready.model + "' first"
	e.diagnose(d, name, dir)
}

// unready is the error of an ensemble over a model with errors, which the ensemble does not repeat, or over a model
// whose inputs and outputs only its missing runtime could provide.
type unready struct {
	model string
	blind string // the backend whose runtime is missing
}

// Error is never shown.
func (*unready) Error() string { return "it has errors of its own" }

// split returns the errors of errors.Join.
func split(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// add adds an error, which may be nil. An error without a rule is a failure to load a model, or to compile an ensemble.
func (e *examiner) add(err error, model, dir string) {
	if err == nil {
		return
	}
	reason := err.Error()
	d, ok := config.Diagnosed(err)
	if !ok || d.Code == config.PythonModel {
		reason = status.Line(reason) // an error of the model may have a stack trace
	}
	if !ok {
		code := config.NotLoaded
		if config.IsEnsemble(e.configs[model]) {
			code = config.NotCompiled
		}
		d, _ = config.Diagnosed(config.Coded(code, "", err))
	}
	d.Reason = reason
	e.diagnose(d, model, dir)
}

// notice returns a diagnostic with the severity of its rule.
func notice(code config.Code, reason string) config.Diagnostic {
	d, _ := config.Diagnosed(config.Errorf(code, "", "%s", reason))
	for _, r := range config.Rules() {
		if r.Code == code {
			d.Severity = r.Severity
		}
	}
	return d
}

// diagnose adds a diagnostic unless the model has one with the same reason.
func (e *examiner) diagnose(d config.Diagnostic, model, dir string) {
	d.Model = model
	one := []config.Diagnostic{d}
	if d.Field != "" {
		e.places[model].Locate(one)
	}
	one[0].File = cmp.Or(one[0].File, dir)
	if !slices.ContainsFunc(e.list, func(o config.Diagnostic) bool { return o.Model == model && o.Reason == d.Reason }) {
		e.list = append(e.list, one[0])
	}
}

func (e *examiner) faultless(model string) bool {
	return e.configs[model] != nil && !slices.ContainsFunc(e.list, func(d config.Diagnostic) bool {
		return d.Model == model && d.Severity == config.Fault
	})
}

// Names implements plan.Namer.
func (e *examiner) Names() []string { return slices.Sorted(maps.Keys(e.configs)) }

// Model implements plan.Lookup with loaded models, and otherwise with declared inputs and outputs.
func (e *examiner) Model(name string, number int64) (plan.Model, error) {
	cfg, known := e.configs[name]
	if dir, _ := e.Repository.Folder(name); !known && dir == "" {
		return plan.Model{}, status.Errorf(status.NotFound, "there is no model '%s'", name)
	}
	if !known || !e.faultless(name) {
		return plan.Model{}, &unready{model: name}
	}
	if config.IsEnsemble(cfg) {
		return plan.Model{Signature: config.SignatureOf(cfg), Ensemble: cfg}, nil
	}
	if done, err := e.Repository.Config(name, max(0, number)); err == nil {
		places, why := e.Repository.Places(name, max(0, number))
		return plan.Model{Signature: config.SignatureOf(done), Places: places, PlacesWhy: why, Sequence: done.GetSequenceBatching() != nil}, nil
	}
	if gaps := config.CheckComplete(cfg); len(gaps) > 0 || len(cfg.GetInput()) == 0 || len(cfg.GetOutput()) == 0 {
		return plan.Model{}, &unready{model: name, blind: cfg.GetBackend()}
	}
	return plan.Model{Signature: config.SignatureOf(cfg), Sequence: cfg.GetSequenceBatching() != nil}, nil
}
