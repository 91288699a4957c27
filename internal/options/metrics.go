package options

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/tutti-server/tutti/internal/telemetry"
)

// Metrics configures the endpoint for metrics and the exported metrics.
type Metrics struct {
	Endpoint
	Export telemetry.ExportOptions
}

const (
	domainGlobal = "global"
	domainModel  = "model"
	metricsForm  = "--metrics-config option format is '<setting>=<value>' or '<domain>,<setting>=<value>'. Got %s"
	allSettings  = "counter_latencies, histogram_latencies, phase_histograms, summary_latencies, summary_quantiles"
	// defaultInterval is the longest time for which a measurement of the machine is reused.
	defaultInterval = 2 * time.Second
)

func metricsFlags() []Flag {
	list := endpointFlags("metrics", "metrics", "", defaultMetricsPort, func(o *Options) *Endpoint { return &o.Metrics.Endpoint })
	list[1].Help += ", that of HTTP when left out"
	return grouped(groupMetrics, append(list,
		Flag{
			Name: "metrics-config", Arg: "domain,key=value", Many: true, set: metricsConfig,
			Help: "Which latencies are exported: counter_latencies=true, summary_latencies=false, histogram_latencies=false, " +
				"phase_histograms=true, " +
				"summary_quantiles=\"0.5:0.05,0.9:0.01,0.95:0.001,0.99:0.001,0.999:0.001\"",
		},
		Flag{
			Name: "allow-cpu-metrics", Arg: argBool, Default: yes, Help: "Export nv_cpu_*, the machine's load and memory",
			set: boolean(func(o *Options) *bool { return &o.Metrics.Export.CPU }),
		},
		Flag{
			Name: "allow-gpu-metrics", Arg: argBool, Default: yes, Help: "Export nv_gpu_* and nv_energy_consumption, if NVIDIA's driver has them",
			set: boolean(func(o *Options) *bool { return &o.Metrics.Export.GPU }),
		},
		Flag{Name: "metrics-interval-ms", Arg: argMillis, Default: "2000", Help: "Shortest time between two measurements of the machine and its GPUs", set: metricsInterval},
	)...)
}

// metricsConfig reads key=value or domain,key=value. Only the first comma separates: quantiles contain commas.
func metricsConfig(o *Options, value string) error {
	before, v, ok := strings.Cut(value, "=")
	domain, key, named := strings.Cut(before, ",")
	if !named {
		domain, key = "", before
	}
	x := &o.Metrics.Export
	switch {
	case !ok || key == "" || v == "":
		return fmt.Errorf(metricsForm, value)
	case domain != "" && domain != domainGlobal && domain != domainModel:
		return fmt.Errorf("unknown domain '%s' of --metrics-config, expected one of: %s, %s", domain, domainGlobal, domainModel)
	}
	switch key {
	case "summary_quantiles":
		return quantiles(o, strings.Trim(v, `"`))
	case "counter_latencies":
		on, err := parseBool(v)
		x.NoCounterLatencies = !on
		return err
	case "phase_histograms":
		on, err := parseBool(v)
		x.NoPhases = !on
		return err
	case "summary_latencies":
		return boolean(func(o *Options) *bool { return &o.Metrics.Export.Summaries })(o, v)
	case "histogram_latencies":
		return boolean(func(o *Options) *bool { return &o.Metrics.Export.Histograms })(o, v)
	}
	return fmt.Errorf("unknown setting '%s' of --metrics-config, expected one of: %s", key, allSettings)
}

// quantiles reads RANK:ERROR,RANK:ERROR. For example: "0.5:0.05,0.99:0.001".
func quantiles(o *Options, text string) error {
	var list []telemetry.Quantile
	for part := range strings.SplitSeq(text, ",") {
		rank, off, ok := strings.Cut(part, ":")
		q, rest, err := fraction(rank)
		e, rest2, err2 := fraction(off)
		if !ok || err != nil || err2 != nil {
			return fmt.Errorf("--metrics-config summary_quantiles has '%s', expected QUANTILE:ERROR, each from 0 to 1", part)
		}
		if rest+rest2 != "" {
			o.Notices = append(o.Notices, Notice{
				Option: "--metrics-config summary_quantiles", Text: fmt.Sprintf("'%s' is read as %v:%v, as Triton does; expected QUANTILE:ERROR", part, q, e),
			})
		}
		list = append(list, telemetry.Quantile{Rank: q, Error: e})
	}
	o.Metrics.Export.Quantiles = list
	return nil
}

// leading matches the number at the beginning of a text, as C's strtod reads one.
var leading = regexp.MustCompile(`^\s*[0-9]*\.?[0-9]*([eE][-+]?[0-9]+)?`)

// fraction reads the number from 0 to 1 at the beginning of s; rest is the text after it.
func fraction(s string) (v float64, rest string, err error) {
	number := leading.FindString(s)
	v, err = strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err == nil && (v < 0 || v > 1) {
		err = strconv.ErrRange
	}
	return v, strings.TrimSpace(s[len(number):]), err
}

func metricsInterval(o *Options, value string) error {
	ms, err := strconv.ParseFloat(value, 64)
	if err != nil {
		return fmt.Errorf("Invalid option value. Got %s", value) //nolint:staticcheck // Triton's words
	}
	if !(ms > 0 && ms <= maxInt) {
		return fmt.Errorf("Provided option value is out of bound. Got %s, expected more than 0", value) //nolint:staticcheck // Triton's words
	}
	o.Metrics.Export.Interval = time.Duration(ms * float64(time.Millisecond))
	return nil
}
