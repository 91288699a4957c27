package config

import (
	"slices"
	"strings"
)

// generalParams are the parameters that any model may have: padding, batch size, and the path of a batching
// library, which is refused.
var generalParams = []string{"pad.*", "unpad.*", "max_batch_elements", batchStrategy}

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
		known, reader = slices.Concat(own, generalParams), "backend '"+l.cfg.GetBackend()+"'"
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

// readsParam reports whether a name matches the known ones.
func readsParam(known []string, name string) bool {
	return slices.ContainsFunc(known, func(k string) bool {
		prefix, open := strings.CutSuffix(k, "*")
		return k == name || open && strings.HasPrefix(name, prefix)
	})
}
