package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Validate returns the first problem of a normalised configuration, or nil.
func Validate(cfg *modelconfig.ModelConfig) error {
	if problems := Check(cfg); len(problems) > 0 {
		return problems[0]
	}
	return nil
}

// Check returns every problem of a normalised configuration that needs no other model: first in the order in which
// Triton checks, then the fields that are set but not supported. Diagnosed returns the code, field and fix of each.
func Check(cfg *modelconfig.ModelConfig) []error { return CheckWith(cfg, nil) }

// CheckWith is Check under options. Nil: the defaults.
func CheckWith(cfg *modelconfig.ModelConfig, o *Options) []error {
	var errs []error
	for _, d := range inspect(cfg, o) {
		if err := d.Err(); err != nil {
			errs = append(errs, err)
		}
	}
	return errs
}

// Inspect returns the problems of Check as diagnostics, and notices. Types and dims that the model or an ensemble's
// steps provide may be missing; see CheckComplete.
func Inspect(cfg *modelconfig.ModelConfig) []Diagnostic { return inspect(cfg, nil) }

func inspect(cfg *modelconfig.ModelConfig, o *Options) []Diagnostic {
	l := &problems{cfg: cfg, gpus: o.gpus()}
	l.backend()
	l.file()
	l.versions()
	l.batching()
	l.sequence()
	if cfg.GetEnsembleScheduling() != nil {
		l.ensemble()
	} else {
		l.instances()
		l.warmups()
	}
	for i, in := range cfg.GetInput() {
		l.input(i, in)
	}
	for i, out := range cfg.GetOutput() {
		l.output(i, out)
	}
	l.names()
	l.batchTensors()
	l.conventions()
	l.cache()
	l.metrics()
	l.unsupported()
	l.parameters(o)
	l.extensions()
	return l.list
}

// CheckComplete returns the problems of a configuration that will not be completed further: every input and output
// must have a type and dims. Triton requires this of every ensemble, and of every model when auto-complete is
// disabled.
func CheckComplete(cfg *modelconfig.ModelConfig) []Diagnostic {
	l := &problems{cfg: cfg, complete: true}
	for i, in := range cfg.GetInput() {
		l.port(fmt.Sprintf("input[%d]", i), "input", in)
	}
	for i, out := range cfg.GetOutput() {
		l.port(fmt.Sprintf("output[%d]", i), "output", out)
	}
	return l.list
}

// problems collects the diagnostics of one configuration.
type problems struct {
	cfg  *modelconfig.ModelConfig
	list []Diagnostic
	gpus []int32 // available devices
	said map[Severity]int
	full bool // the last diagnostic exceeded the limit
	// complete also reports types and dims that a model or step could still provide.
	complete bool
}

// maxDiagnostics is the number of diagnostics of one severity that are returned.
const maxDiagnostics = 100

func (l *problems) add(code Code, field, format string, args ...any) {
	d := newDiagnostic(code, field, fmt.Sprintf(format, args...))
	d.Model = l.cfg.GetName()
	if l.said == nil {
		l.said = map[Severity]int{}
	}
	l.said[d.Severity]++
	if l.full = l.said[d.Severity] > maxDiagnostics; !l.full {
		l.list = append(l.list, d)
	}
}

// fix replaces the advice of the last diagnostic.
func (l *problems) fix(text string) {
	if !l.full {
		l.list[len(l.list)-1].Fix = text
	}
}

// file rejects model file names that lead out of the version folder.
func (l *problems) file() {
	if f := l.cfg.GetDefaultModelFilename(); f != "" && !filepath.IsLocal(f) {
		l.add(FileOutside, "default_model_filename",
			"default_model_filename '%s' of model '%s' is outside the version folder", f, l.cfg.GetName())
	}
	names := l.cfg.GetCcModelFilenames()
	for _, key := range sortedKeys(names) {
		if f := names[key]; !filepath.IsLocal(f) {
			l.add(FileOutside, "cc_model_filenames",
				"cc_model_filenames '%s' of model '%s' is outside the version folder", f, l.cfg.GetName())
		}
	}
}

func (l *problems) backend() {
	name, platform, backend := l.cfg.GetName(), l.cfg.GetPlatform(), l.cfg.GetBackend()
	if name == "" {
		l.add(NoName, "name", "model configuration must specify 'name'")
	}
	switch {
	case platform == EnsemblePlatform && backend != "":
		l.add(EnsembleFlow, "backend", "Ensemble model '%s' must have platform type 'ensemble' and empty backend type", name)
	case platform == EnsemblePlatform && l.cfg.GetEnsembleScheduling() == nil:
		l.add(EnsembleFlow, "platform", "ensemble scheduling must be set for ensemble %s whose platform is %s", name, EnsemblePlatform)
	case platform == EnsemblePlatform:
	case l.cfg.GetEnsembleScheduling() != nil:
		l.add(EnsembleFlow, "ensemble_scheduling", "ensemble scheduling cannot be set for model '%s' whose platform is not %s", name, EnsemblePlatform)
	case platform == "" && backend == "":
		l.add(NoBackend, "backend", "must specify 'platform' or 'backend' for '%s'", name)
	case backend == "":
		l.add(BadPlatform, "platform", "unexpected platform type '%s' for %s", platform, name)
		if near := nearest(platform, sortedKeys(platforms)); near != "" {
			l.fix("did you mean \"" + near + "\"? Set backend instead of platform")
		}
	case platform != "" && !samePlatform(platform, backend):
		l.add(BadPair, "platform", "unexpected 'platform' and 'backend' pair, got:%s, %s", platform, backend)
	}
}

// samePlatform reports whether both names mean one backend, or neither is known.
func samePlatform(platform, backend string) bool {
	if known, ok := platforms[platform]; ok {
		return known == backend
	}
	for _, known := range platforms {
		if known == backend {
			return platform == backend
		}
	}
	return true
}

// versions rejects a version policy that selects nothing.
func (l *problems) versions() {
	p := l.cfg.GetVersionPolicy()
	if s := p.GetSpecific(); s != nil {
		if len(s.GetVersions()) == 0 {
			l.add(Versions, "version_policy.specific", "version_policy 'specific' of model '%s' must list at least one version", l.cfg.GetName())
		}
		for _, v := range s.GetVersions() {
			if v < 1 {
				l.add(Versions, "version_policy.specific", "version_policy 'specific' of model '%s' lists version %d, expected at least 1", l.cfg.GetName(), v)
				break
			}
		}
	}
}

// cache rejects the response cache where equal requests may have different responses.
func (l *problems) cache() {
	name := l.cfg.GetName()
	if !l.cfg.GetResponseCache().GetEnable() {
		return
	}
	if l.cfg.GetModelTransactionPolicy().GetDecoupled() {
		l.add(CacheClash, "response_cache", "Response Cache does not currently support model %s with 'decoupled' transaction policy. "+
			"Please disable the response cache.", name)
	}
	if l.cfg.GetSequenceBatching() != nil {
		l.add(CacheClash, "response_cache", "Response Cache does not currently support model %s with sequence batching scheduler. "+
			"Please disable the response cache.", name)
	}
}

// extensions adds a notice for each extension that Triton would reject.
func (l *problems) extensions() {
	name := l.cfg.GetName()
	if b := l.cfg.GetBackend(); b == nativeBackend {
		l.add(OwnBackend, "backend", "model '%s' uses backend '%s', which Triton does not have", name, b)
	}
	for _, key := range sortedKeys(l.cfg.GetParameters()) {
		if strings.HasPrefix(key, "pad.") || strings.HasPrefix(key, "unpad.") {
			l.add(PaddingParam, "parameters", "model '%s' sets parameter '%s', which Triton ignores", name, key)
		}
	}
}

// sortedKeys returns the keys of m, sorted.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
