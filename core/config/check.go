package config

import (
	"path/filepath"

	"tutti/core/status"
	"tutti/proto/modelconfig"
)

// Validate returns the first problem of a normalised configuration, or nil.
func Validate(cfg *modelconfig.ModelConfig) error {
	if problems := Check(cfg); len(problems) > 0 {
		return problems[0]
	}
	return nil
}

// Check returns every problem of a normalised configuration that can be found
// without any other model, in the order in which Triton looks for them, and then
// each field that is set but not supported.
func Check(cfg *modelconfig.ModelConfig) []error {
	l := &problems{cfg: cfg}
	l.backend()
	l.file()
	l.batching()
	if cfg.GetEnsembleScheduling() != nil {
		l.ensemble()
	} else {
		l.instances()
	}
	for _, in := range cfg.GetInput() {
		l.input(in)
	}
	for _, out := range cfg.GetOutput() {
		l.output(out)
	}
	l.names()
	l.unsupported()
	return l.list
}

// problems collects what is wrong with one configuration.
type problems struct {
	cfg  *modelconfig.ModelConfig
	list []error
}

func (l *problems) add(format string, args ...any) {
	l.list = append(l.list, status.Errorf(status.InvalidArg, format, args...))
}

// file refuses a model file that the version folder does not hold.
func (l *problems) file() {
	if f := l.cfg.GetDefaultModelFilename(); f != "" && !filepath.IsLocal(f) {
		l.add("default_model_filename '%s' of model '%s' is outside the version folder", f, l.cfg.GetName())
	}
}

func (l *problems) backend() {
	name, platform, backend := l.cfg.GetName(), l.cfg.GetPlatform(), l.cfg.GetBackend()
	if name == "" {
		l.add("model configuration must specify 'name'")
	}
	switch {
	case platform == EnsemblePlatform && backend != "":
		l.add("Ensemble model '%s' must have platform type 'ensemble' and empty backend type", name)
	case platform == EnsemblePlatform && l.cfg.GetEnsembleScheduling() == nil:
		l.add("ensemble scheduling must be set for ensemble %s whose platform is %s", name, EnsemblePlatform)
	case platform == EnsemblePlatform:
	case l.cfg.GetEnsembleScheduling() != nil:
		l.add("ensemble scheduling cannot be set for model '%s' whose platform is not %s", name, EnsemblePlatform)
	case platform == "" && backend == "":
		l.add("must specify 'platform' or 'backend' for '%s'", name)
	case backend == "":
		l.add("unexpected platform type '%s' for %s", platform, name)
	case platform != "" && !samePlatform(platform, backend):
		l.add("unexpected 'platform' and 'backend' pair, got:%s, %s", platform, backend)
	}
}

// samePlatform reports whether both names mean one backend, or neither is a known one.
func samePlatform(platform, backend string) bool {
	if known, ok := platforms[platform]; ok {
		return known == backend
	}
	for _, known := range platforms {
		if known == backend {
			return false
		}
	}
	return true
}

func (l *problems) batching() {
	name, limit := l.cfg.GetName(), l.cfg.GetMaxBatchSize()
	if limit < 0 {
		l.add("'max_batch_size' must be non-negative value for %s", name)
	}
	d := l.cfg.GetDynamicBatching()
	for _, size := range d.GetPreferredBatchSize() {
		if size <= 0 {
			l.add("dynamic batching preferred size must be positive for %s", name)
		}
		if size > limit {
			l.add("dynamic batching preferred size must be <= max batch size for %s", name)
		}
	}
	levels := d.GetPriorityLevels()
	if def := d.GetDefaultPriorityLevel(); levels > 0 && (def == 0 || def > levels) {
		l.add("default priority level must be in range [1, %d] for %s", levels, name)
	}
	for level := range d.GetPriorityQueuePolicy() {
		if level == 0 || level > levels {
			l.add("priority queue policy must have priority level in range [1, %d] for %s", levels, name)
			break
		}
	}
	if d.GetPreserveOrdering() {
		l.preserveOrdering(d)
	}
}

func (l *problems) preserveOrdering(d *modelconfig.ModelDynamicBatching) {
	if d.GetPriorityLevels() > 1 {
		l.add("Only one priority level is allowed when 'preserve_ordering' is true for %s", l.cfg.GetName())
	}
	delays := d.GetDefaultQueuePolicy().GetTimeoutAction() == modelconfig.ModelQueuePolicy_DELAY
	for _, p := range d.GetPriorityQueuePolicy() {
		delays = delays || p.GetTimeoutAction() == modelconfig.ModelQueuePolicy_DELAY
	}
	if delays {
		l.add("Queue policy can not have DELAY as timeout action when 'preserve_ordering' is true for %s", l.cfg.GetName())
	}
}

func (l *problems) instances() {
	if l.cfg.GetPlatform() == EnsemblePlatform {
		return // said already: its scheduling is missing
	}
	if len(l.cfg.GetInstanceGroup()) == 0 {
		l.add("must specify one or more 'instance group's for %s", l.cfg.GetName())
	}
	for _, g := range l.cfg.GetInstanceGroup() {
		switch {
		case g.GetCount() < 0:
			l.add("instance group %s of model %s must specify a positive 'count', got %d", g.GetName(), l.cfg.GetName(), g.GetCount())
		case g.GetCount() > maxInstances:
			l.add("instance group %s of model %s has 'count' %d, expected at most %d",
				g.GetName(), l.cfg.GetName(), g.GetCount(), maxInstances)
		}
		if g.GetKind() != modelconfig.ModelInstanceGroup_KIND_GPU && len(g.GetGpus()) > 0 {
			l.add("instance group %s of model %s has kind %s but specifies one or more GPUs",
				g.GetName(), l.cfg.GetName(), g.GetKind())
		}
	}
}

// maxInstances bounds a group's count, so that a slip of the keyboard does not take
// the machine down.
const maxInstances = 1024
