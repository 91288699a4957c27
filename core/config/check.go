package config

import (
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/tutti-server/tutti/proto/modelconfig"
)

// Validate returns the first problem of a normalised configuration, or nil.
func Validate(cfg *modelconfig.ModelConfig) error { return FirstError(Inspect(cfg)) }

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
	for _, p := range portsOf(cfg) {
		l.port(p)
		l.portExtras(p)
	}
	l.names()
	l.batchTensors()
	l.conventions()
	l.cache()
	l.metrics()
	l.unsupported()
	l.parameters(o)
	l.resident()
	l.apis()
	l.tool()
	l.extensions()
	return l.list
}

// CheckComplete returns the problems of a configuration that will not be completed further: every input and output must
// have a type and dims. Triton requires this of every ensemble, and of every model when auto-complete is disabled.
func CheckComplete(cfg *modelconfig.ModelConfig) []Diagnostic {
	l := &problems{cfg: cfg, complete: true}
	for _, p := range portsOf(cfg) {
		l.port(p)
	}
	return l.list
}

// problems collects the diagnostics of one configuration.
type problems struct {
	cfg      *modelconfig.ModelConfig
	list     []Diagnostic
	gpus     []int32 // available devices
	said     map[Severity]int
	full     bool // the last diagnostic exceeded the limit
	complete bool // also reports types and dims that a model or step could still provide
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

// addIf adds a diagnostic if something is wrong.
func (l *problems) addIf(wrong bool, code Code, field, format string, args ...any) {
	if wrong {
		l.add(code, field, format, args...)
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
	check := func(field, file string) {
		l.addIf(!filepath.IsLocal(file), FileOutside, field, "%s '%s' of model '%s' is outside the version folder", field, file, l.cfg.GetName())
	}
	if f := l.cfg.GetDefaultModelFilename(); f != "" {
		check("default_model_filename", f)
	}
	names := l.cfg.GetCcModelFilenames()
	for _, key := range sortedKeys(names) {
		check("cc_model_filenames", names[key])
	}
}

func (l *problems) backend() {
	name, platform, backend := l.cfg.GetName(), l.cfg.GetPlatform(), l.cfg.GetBackend()
	l.addIf(name == "", NoName, "name", "model configuration must specify 'name'")
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
	return platform == backend || !slices.Contains(slices.Collect(maps.Values(platforms)), backend)
}

// versions rejects a version policy that selects nothing.
func (l *problems) versions() {
	const field = "version_policy.specific"
	s := l.cfg.GetVersionPolicy().GetSpecific()
	l.addIf(s != nil && len(s.GetVersions()) == 0, Versions, field,
		"version_policy 'specific' of model '%s' must list at least one version", l.cfg.GetName())
	if i := slices.IndexFunc(s.GetVersions(), func(v int64) bool { return v < 1 }); i >= 0 {
		l.add(Versions, field, "version_policy 'specific' of model '%s' lists version %d, expected at least 1", l.cfg.GetName(), s.GetVersions()[i])
	}
}

// cache rejects the response cache where equal requests may have different responses.
func (l *problems) cache() {
	const field, text = "response_cache", "Response Cache does not currently support model %s with %s. Please disable the response cache."
	on := l.cfg.GetResponseCache().GetEnable()
	l.addIf(on && l.cfg.GetModelTransactionPolicy().GetDecoupled(), CacheClash, field, text, l.cfg.GetName(), "'decoupled' transaction policy")
	l.addIf(on && EarlyOutputs(l.cfg), CacheClash, field, text, l.cfg.GetName(), "early outputs")
	l.addIf(on && l.cfg.GetSequenceBatching() != nil, CacheClash, field, text, l.cfg.GetName(), "sequence batching scheduler")
}

// PadPrefix and UnpadPrefix start the parameters that pad the rows of a batch: pad.INPUT and unpad.OUTPUT.
const (
	PadPrefix   = "pad."
	UnpadPrefix = "unpad."
)

// IsPaddingParam reports whether a parameter pads, so that no backend reads it.
func IsPaddingParam(key string) bool {
	return strings.HasPrefix(key, PadPrefix) || strings.HasPrefix(key, UnpadPrefix)
}

// extensions adds a notice for each extension that Triton would reject.
func (l *problems) extensions() {
	name, b := l.cfg.GetName(), l.cfg.GetBackend()
	l.addIf(b == nativeBackend, OwnBackend, "backend", "model '%s' uses backend '%s', which Triton does not have", name, b)
	for _, key := range sortedKeys(l.cfg.GetParameters()) {
		l.addIf(IsPaddingParam(key), PaddingParam, "parameters", "model '%s' sets parameter '%s', which Triton ignores", name, key)
		l.addIf(IsEnsemble(l.cfg) && IsFlowParam(key), FlowExtension, "parameters."+key, "ensemble '%s' sets parameter '%s', which Triton ignores", name, key)
	}
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// firstResponse is the only metric family whose buckets a model may choose.
const firstResponse = "nv_inference_first_response_histogram_ms"

// labelName matches a tag's key: the label is the key after an underscore.
var labelName = regexp.MustCompile(`^[a-zA-Z0-9_]+$`)

// metrics rejects metric settings that Prometheus could not represent.
func (l *problems) metrics() {
	name := l.cfg.GetName()
	for _, tag := range sortedKeys(l.cfg.GetMetricTags()) {
		l.addIf(!labelName.MatchString(tag) || tag[0] == '_', Metrics, "metric_tags."+tag,
			"metric tag '%s' of model %s is no name of a label, expected letters, digits and underscores, no underscore first", tag, name)
	}
	for i, c := range l.cfg.GetModelMetrics().GetMetricControl() {
		field := "model_metrics.metric_control[" + strconv.Itoa(i) + "]"
		family := c.GetMetricIdentifier().GetFamily()
		l.addIf(family != firstResponse, Metrics, field+".metric_identifier.family",
			"metric family '%s' of model %s cannot be changed, expected '%s'", family, name, firstResponse)
		list := c.GetHistogramOptions().GetBuckets()
		for j := range list {
			if list[j] != list[j] || j > 0 && !(list[j] > list[j-1]) { // a NaN is none
				l.add(Metrics, field+".histogram_options.buckets", "histogram buckets of model %s must ascend, got %v", name, list)
				break
			}
		}
	}
}

// generalParams are the parameters that any model may have: whether it is idempotent, padding, batch size, and the path of a batching
// library, which is refused, and what it serves on the routes of other servers.
var generalParams = slices.Concat([]string{IdempotentParam, "watchdog_secs", "memory_limit_bytes", PadPrefix + "*", UnpadPrefix + "*", "max_batch_elements", batchStrategy}, apiParams)

// ensembleParams are the parameters of ensembles.
var ensembleParams = slices.Concat([]string{ResidentParam, stepPrefix + "*", firstOfParam, gatherParam, maxItemsParam, inFlightParam, ensembleAdaptParam, earlyParam, limitParam}, ensembleRouteParams, apiParams, toolParams)

// ResidentParam is the parameter of an ensemble that refuses it when a tensor would be copied between two of its steps.
const ResidentParam = "require_resident"

// RequireResident reports whether an ensemble has the parameter ResidentParam with the value "true".
func RequireResident(cfg *modelconfig.ModelConfig) bool {
	return cfg.GetParameters()[ResidentParam].GetStringValue() == "true"
}

// resident rejects a value of ResidentParam other than true and false.
func (l *problems) resident() {
	p, set := l.cfg.GetParameters()[ResidentParam]
	if v := p.GetStringValue(); set && IsEnsemble(l.cfg) && v != "true" && v != "false" {
		l.add(BadParam, "parameters."+ResidentParam, "parameter '%s' of ensemble '%s' is '%s', expected 'true' or 'false'", ResidentParam, l.cfg.GetName(), v)
	}
}

// parameters reports each parameter that nothing reads: most likely a typing error. Triton ignores it.
// Options.StrictParams makes it a fault.
func (l *problems) parameters(o *Options) {
	if o == nil || o.Params == nil {
		return
	}
	var own, known []string
	reader := "an ensemble"
	if !IsEnsemble(l.cfg) {
		if own = o.Params(l.cfg.GetBackend()); own == nil {
			return
		}
		known, reader = slices.Concat(own, generalParams, toolParams), "backend '"+l.cfg.GetBackend()+"'"
	} else {
		known = ensembleParams
	}
	for _, key := range sortedKeys(l.cfg.GetParameters()) {
		if readsParam(known, key) {
			continue
		}
		l.add(UnknownParam, "parameters."+key, "parameter '%s' of model '%s' has no effect: %s does not read it.%s",
			key, l.cfg.GetName(), reader, DidYouMean(key, known))
		if len(own) > 0 {
			l.fix("remove it, or correct its name: " + reader + " reads " + strings.Join(own, ", "))
		}
		if o.StrictParams && !l.full {
			l.list[len(l.list)-1].Severity = Fault
		}
	}
}

func readsParam(known []string, name string) bool {
	return slices.ContainsFunc(known, func(k string) bool {
		prefix, open := strings.CutSuffix(k, "*")
		return k == name || open && strings.HasPrefix(name, prefix)
	})
}
