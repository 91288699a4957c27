package config

import (
	"slices"
	"strings"
)

// generalParams are the parameters that any model may have, whatever its backend: those of padding and of batches, and
// the one that names a library, which is refused.
var generalParams = []string{"pad.*", "unpad.*", "max_batch_elements", batchStrategy}

// parameters tells of each parameter that nobody reads. Triton ignores it, and so does this server, unless the options
// say otherwise: it most likely is a slip of the pen.
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

// readsParam reports whether a name is among those that are known.
func readsParam(known []string, name string) bool {
	return slices.ContainsFunc(known, func(k string) bool {
		prefix, open := strings.CutSuffix(k, "*")
		return k == name || open && strings.HasPrefix(name, prefix)
	})
}
