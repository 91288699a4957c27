package config

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
)

// firstResponse is the only metric family whose buckets a model may choose.
const firstResponse = "nv_inference_first_response_histogram_ms"

// labelName matches a tag's key: the label is the key after an underscore.
var labelName = regexp.MustCompile(`^[a-zA-Z0-9_]+$`)

// metrics rejects metric settings that Prometheus could not represent.
func (l *problems) metrics() {
	name := l.cfg.GetName()
	for _, tag := range slices.Sorted(maps.Keys(l.cfg.GetMetricTags())) {
		if !labelName.MatchString(tag) || tag[0] == '_' {
			l.add(Metrics, "metric_tags."+tag, "metric tag '%s' of model %s is no name of a label, expected letters, digits and underscores, no underscore first", tag, name)
		}
	}
	for i, c := range l.cfg.GetModelMetrics().GetMetricControl() {
		field := "model_metrics.metric_control[" + strconv.Itoa(i) + "]"
		if f := c.GetMetricIdentifier().GetFamily(); f != firstResponse {
			l.add(Metrics, field+".metric_identifier.family", "metric family '%s' of model %s cannot be changed, expected '%s'", f, name, firstResponse)
		}
		list := c.GetHistogramOptions().GetBuckets()
		for j := range list {
			if list[j] != list[j] || j > 0 && !(list[j] > list[j-1]) { // a NaN is none
				l.add(Metrics, field+".histogram_options.buckets", "histogram buckets of model %s must ascend, got %v", name, list)
				break
			}
		}
	}
}
